"""OpenAI-compatible /v1/completions and /v1/chat/completions, streaming or not."""

import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from peasy.errors import InvalidInput, PeasyError
from peasy.render.json import plain
from peasy.studio.dialect import Chat, Completion, Writing
from peasy.studio.draft import Draft, Piece, chat_logprobs, completion_logprobs
from peasy.studio.guard import Refused
from peasy.studio.reply import Fault, openai_error
from peasy.studio.session import LONG, Session, open_session, unless_gone
from peasy.text.template import render_chat
from peasy.workbench.load import LoadedModel

router = APIRouter(prefix="/v1")

CHAT_TOKENS = 256
"""Default max_tokens of a chat completion."""


@router.post("/completions")
async def post_completions(request: Request, asked: Completion) -> Response:
    """Complete one or more prompts."""
    n = asked.n or 1
    if asked.best_of not in (None, n):
        raise InvalidInput("best_of must equal n: all choices are returned.", hint="Leave it out.")
    if asked.echo and asked.logprobs is not None:
        raise InvalidInput("echo with logprobs is not supported.", hint="Leave out echo or logprobs.")
    prompts = asked.prompts()
    size = sum(len(prompt) for prompt in prompts)
    sampling = asked.sampling(asked.max_tokens or 16, asked.logprobs)
    session = await open_session(
        request.app.state.registry, asked, lambda loaded: [_ids(loaded, prompt) for prompt in prompts], size, sampling
    )
    return await _write(request, asked, session, TEXT)


def _ids(loaded: LoadedModel, prompt: str | list[int]) -> list[int]:
    return loaded.prompt(prompt) if isinstance(prompt, str) else prompt


@router.post("/chat/completions")
async def post_chat(request: Request, asked: Chat) -> Response:
    """Return the model's next message in a conversation."""
    if asked.top_logprobs is not None and not asked.logprobs:
        raise InvalidInput("top_logprobs needs logprobs.", hint='Send "logprobs": true.')
    num_logprobs = (asked.top_logprobs or 0) if asked.logprobs else None
    max_tokens = asked.max_completion_tokens or asked.max_tokens or CHAT_TOKENS
    messages = [message.plain() for message in asked.messages]

    def encode_chat(loaded: LoadedModel) -> list[list[int]]:
        tokenizer = loaded.need_tokenizer()
        if loaded.model.reads_source or tokenizer.chat_template is None:
            raise InvalidInput(
                f"{asked.model} has no chat template.", hint="Use POST /v1/completions with a prompt instead."
            )
        return [list(tokenizer.encode(render_chat(tokenizer, messages), special=False).ids)]

    # The template runs in a sandbox process, which takes a while: the size LONG keeps it off the event loop.
    sampling = asked.sampling(max_tokens, num_logprobs)
    session = await open_session(request.app.state.registry, asked, encode_chat, LONG, sampling)
    return await _write(request, asked, session, TALK)


@dataclass(frozen=True)
class Form:
    """Differences between completions and chat completions: object names, choice and delta formats."""

    sign: str
    whole: str
    part: str
    choice: Callable[[Piece, Writing, str], dict[str, Any]]
    delta: Callable[[Piece, Writing, int], dict[str, Any]]
    first: dict[str, Any] | None = None


def _text(piece: Piece, asked: Any, before: str) -> dict[str, Any]:
    logprobs = completion_logprobs(piece.tokens, len(before)) if asked.logprobs is not None else None
    return {"text": before + piece.text, "logprobs": logprobs}


def _text_delta(piece: Piece, asked: Any, start: int) -> dict[str, Any]:
    logprobs = completion_logprobs(piece.tokens) if asked.logprobs is not None else None
    return {"text": piece.text, "logprobs": logprobs}


def _talk(piece: Piece, asked: Any, before: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": piece.text, "refusal": None}
    return {"message": message, "logprobs": chat_logprobs(piece.tokens) if asked.logprobs else None}


def _talk_delta(piece: Piece, asked: Any, start: int) -> dict[str, Any]:
    delta = {"content": piece.text} if piece.text or not piece.reason else {}
    return {"delta": delta, "logprobs": chat_logprobs(piece.tokens) if asked.logprobs and piece.tokens else None}


TEXT = Form("cmpl", "text_completion", "text_completion", _text, _text_delta)
TALK = Form(
    "chatcmpl", "chat.completion", "chat.completion.chunk", _talk, _talk_delta, {"role": "assistant", "content": ""}
)


async def _write(request: Request, asked: Writing, session: Session, form: Form) -> Response:
    reply = _Reply(asked, session, form)
    prompts = asked.model_dump(include={"prompt", "messages"}) if request.app.state.log_prompts else {}
    request.state.log_fields = lambda: reply.told() | prompts
    if asked.stream:
        return _Stream(reply)
    return JSONResponse(await unless_gone(request, reply.whole()))


class _Stream(StreamingResponse):
    """Streaming response that closes its session at the end, also when the client disconnects."""

    def __init__(self, reply: "_Reply") -> None:
        super().__init__(reply.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self.session = reply.session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream over ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.session.close()


class _Reply:
    """Response of one request, as one JSON object or as a stream of chunks."""

    def __init__(self, asked: Writing, session: Session, form: Form) -> None:
        self.asked, self.session, self.form = asked, session, form
        self.head = {"id": f"{form.sign}-{secrets.token_hex(12)}", "created": int(time.time()), "model": asked.model}
        loaded = session.loaded
        tokenizer, source_tokenizer = loaded.answers(), loaded.need_tokenizer()
        stops_at_eos = form is TALK and tokenizer.special.eos is not None
        self.drafts = [
            Draft(
                tokenizer, source_tokenizer, ids, loaded.model.reads_source,
                frozenset([tokenizer.special.eos]) if stops_at_eos else frozenset(),  # type: ignore[list-item]
                chances=asked.logprobs not in (None, False),  # type: ignore[attr-defined]
            )
            for ids in session.prompts
            for _ in range(session.n)
        ]  # fmt: skip

    def told(self) -> dict[str, Any]:
        """Return the fields of the access log."""
        return {"model": self.asked.model, "stream": bool(self.asked.stream), **self.usage()}

    def usage(self) -> dict[str, Any]:
        """Return OpenAI's usage object."""
        num_prompt = sum(len(ids) for ids in self.session.prompts)
        num_generated = sum(len(choice.ids) for choice in self.drafts)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_generated,
            "total_tokens": num_prompt + num_generated,
            "prompt_tokens_details": {"cached_tokens": self.session.reused},
        }

    async def _pieces(self) -> AsyncIterator[list[tuple[int, Piece]]]:
        """Yield new deltas with the index of their choice, until all choices are finished."""
        try:
            async for events in self.session.events():
                yield [(index, self.drafts[index].hear(event)) for index, event in events]
                if all(choice.over for choice in self.drafts):
                    return
        finally:
            self.session.close()

    async def whole(self) -> dict[str, Any]:
        """Return the complete response object."""
        async for _ in self._pieces():
            pass
        for choice in self.drafts:
            _refuse_end(choice.whole.reason)
        choices = [self._choice(index, choice) for index, choice in enumerate(self.drafts)]
        return plain({**self.head, "object": self.form.whole, "choices": choices, "usage": self.usage()})

    def _choice(self, place: int, draft: Draft) -> dict[str, Any]:
        echoed = ""
        if getattr(self.asked, "echo", False):
            echoed = self.session.loaded.need_tokenizer().decode(draft.prompt)
        fields = self.form.choice(draft.whole, self.asked, echoed)
        return {"index": place, **fields, "finish_reason": draft.whole.reason} | _attention(draft.whole, self.asked)

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events; errors too are sent as events, and the stream always ends with [DONE]."""
        try:
            yield self._opening()
            async for deltas in self._pieces():
                for _, delta in deltas:
                    _refuse_end(delta.reason)
                yield b"".join(self._chunk(index, delta) for index, delta in deltas if delta)
            if self.asked.usage_told:
                yield _event({**self.head, "object": self.form.part, "choices": [], "usage": self.usage()})
        except PeasyError as error:
            yield _event(openai_error(error))
        except Exception as error:
            logging.getLogger("peasy.studio").exception("unhandled exception in a stream")
            yield _event(openai_error(Fault(f"This is a bug in peasy: {type(error).__name__}.")))
        yield b"data: [DONE]\n\n"

    def _opening(self) -> bytes:
        """Return the first chunks of a stream: the role of a chat message, or the echoed prompt."""
        if self.form.first is not None:
            return b"".join(self._event(index, {"delta": self.form.first, "logprobs": None}) for index, _ in self._all)
        if not getattr(self.asked, "echo", False):
            return b""
        tokenizer = self.session.loaded.need_tokenizer()
        return b"".join(
            self._event(index, {"text": tokenizer.decode(choice.prompt), "logprobs": None})
            for index, choice in self._all
        )

    @property
    def _all(self) -> list[tuple[int, Draft]]:
        return list(enumerate(self.drafts))

    def _chunk(self, place: int, piece: Piece) -> bytes:
        fields = self.form.delta(piece, self.asked, place)
        return self._event(place, fields | _attention(piece, self.asked), piece.reason)

    def _event(self, place: int, made: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": place, **made, "finish_reason": reason}
        usage = {"usage": None} if self.asked.usage_told else {}
        return _event({**self.head, "object": self.form.part, "choices": [choice], **usage})


def _attention(piece: Piece, asked: Writing) -> dict[str, Any]:
    return {} if asked.attention is None else {"attention": piece.attention}


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(plain(data), ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _refuse_end(reason: str | None) -> None:
    """Raise if generation ended for any reason but stop or length."""
    if reason == "cancelled":
        raise Refused(503, "This server is shutting down; the text is incomplete.", hint="Retry when it is back.")
    if reason not in (None, "stop", "length"):
        raise Refused(503, f"The text is incomplete: {reason}.", hint="Retry.")
