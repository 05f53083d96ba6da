"""Writing, in the form of the common clients: completions and chats, at once or as a stream."""

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
"""What an answer has at most, unless its asker says otherwise."""


@router.post("/completions")
async def post_completions(request: Request, asked: Completion) -> Response:
    """Write on from a prompt, or from several."""
    n = asked.n or 1
    if asked.best_of not in (None, n):
        raise InvalidInput("best_of: every text that is written is given.", hint="Leave it out, or give it as n.")
    if asked.echo and asked.logprobs is not None:
        raise InvalidInput("echo: chances are told only of what is written.", hint="Leave out echo or logprobs.")
    prompts = asked.prompts()
    size = sum(len(each) for each in prompts)
    how = asked.sampling(asked.max_tokens or 16, asked.logprobs)
    session = await open_session(
        request.app.state.house, asked, lambda loaded: [_ids(loaded, each) for each in prompts], size, how
    )
    return await _write(request, asked, session, TEXT)


def _ids(loaded: LoadedModel, prompt: str | list[int]) -> list[int]:
    return loaded.prompt(prompt) if isinstance(prompt, str) else prompt


@router.post("/chat/completions")
async def post_chat(request: Request, asked: Chat) -> Response:
    """The model's next turn in a conversation."""
    if asked.top_logprobs is not None and not asked.logprobs:
        raise InvalidInput("top_logprobs: chances were not asked for.", hint='Give "logprobs": true.')
    told = (asked.top_logprobs or 0) if asked.logprobs else None
    most = asked.max_completion_tokens or asked.max_tokens or CHAT_TOKENS
    messages = [each.plain() for each in asked.messages]

    def ids(loaded: LoadedModel) -> list[list[int]]:
        words = loaded.need_tokenizer()
        if loaded.model.reads_source or words.chat_template is None:
            raise InvalidInput(
                f"{asked.model} has no chat template: it was not made to talk.",
                hint="Let it write on instead: POST /v1/completions with a prompt.",
            )
        return [list(words.encode(render_chat(words, messages), special=False).ids)]

    # A template runs in a process of its own, which takes a while: never on the loop.
    session = await open_session(request.app.state.house, asked, ids, LONG, asked.sampling(most, told))
    return await _write(request, asked, session, TALK)


@dataclass(frozen=True)
class Form:
    """How completions and chats differ."""

    sign: str
    whole: str
    part: str
    choice: Callable[[Piece, Writing, str], dict[str, Any]]
    delta: Callable[[Piece, Writing, int], dict[str, Any]]
    first: dict[str, Any] | None = None


def _text(piece: Piece, asked: Any, before: str) -> dict[str, Any]:
    told = completion_logprobs(piece.tokens, len(before)) if asked.logprobs is not None else None
    return {"text": before + piece.text, "logprobs": told}


def _text_delta(piece: Piece, asked: Any, start: int) -> dict[str, Any]:
    told = completion_logprobs(piece.tokens) if asked.logprobs is not None else None
    return {"text": piece.text, "logprobs": told}


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
    said = asked.model_dump(include={"prompt", "messages"}) if request.app.state.log_prompts else {}
    request.state.told = lambda: reply.told() | said  # what the log may say of it
    if asked.stream:
        return _Stream(reply)
    return JSONResponse(await unless_gone(request, reply.whole()))


class _Stream(StreamingResponse):
    """A stream whose engine is free as soon as it ends, also when it ends because nobody listens."""

    def __init__(self, reply: "_Reply") -> None:
        super().__init__(reply.stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self.session = reply.session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it, as ASGI asks."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.session.close()


class _Reply:
    """One request's texts, as one answer or as a stream of pieces. Leaving it frees the engine."""

    def __init__(self, asked: Writing, session: Session, form: Form) -> None:
        self.asked, self.session, self.form = asked, session, form
        self.head = {"id": f"{form.sign}-{secrets.token_hex(12)}", "created": int(time.time()), "model": asked.model}
        loaded = session.loaded
        words, source = loaded.answers(), loaded.need_tokenizer()
        talks = form is TALK and words.special.eos is not None
        self.drafts = [
            Draft(
                words, source, ids, loaded.model.reads_source,
                frozenset([words.special.eos]) if talks else frozenset(),  # type: ignore[list-item]
                chances=asked.logprobs not in (None, False),  # type: ignore[attr-defined]
            )
            for ids in session.prompts
            for _ in range(session.n)
        ]  # fmt: skip

    def told(self) -> dict[str, Any]:
        """What happened, in numbers."""
        return {"model": self.asked.model, "stream": bool(self.asked.stream), **self.usage()}

    def usage(self) -> dict[str, Any]:
        """How much was read and written."""
        read = sum(len(ids) for ids in self.session.prompts)
        written = sum(len(draft.ids) for draft in self.drafts)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": self.session.reused},
        }

    async def _pieces(self) -> AsyncIterator[list[tuple[int, Piece]]]:
        """What is new, choice by choice, until all are whole."""
        try:
            async for events in self.session.events():
                yield [(place, self.drafts[place].hear(event)) for place, event in events]
                if all(draft.over for draft in self.drafts):
                    return
        finally:
            self.session.close()

    async def whole(self) -> dict[str, Any]:
        """All of it at once."""
        async for _ in self._pieces():
            pass
        for draft in self.drafts:
            _refuse_end(draft.whole.reason)
        choices = [self._choice(place, draft) for place, draft in enumerate(self.drafts)]
        return plain({**self.head, "object": self.form.whole, "choices": choices, "usage": self.usage()})

    def _choice(self, place: int, draft: Draft) -> dict[str, Any]:
        before = ""
        if getattr(self.asked, "echo", False):
            before = self.session.loaded.need_tokenizer().decode(draft.prompt)
        made = self.form.choice(draft.whole, self.asked, before)
        return {"index": place, **made, "finish_reason": draft.whole.reason} | _attention(draft.whole, self.asked)

    async def stream(self) -> AsyncIterator[bytes]:
        """Piece by piece, as server-sent events; the end is in good form whatever happens."""
        try:
            yield self._opening()
            async for pieces in self._pieces():
                for _, piece in pieces:
                    _refuse_end(piece.reason)
                yield b"".join(self._chunk(place, piece) for place, piece in pieces if piece)
            if self.asked.usage_told:
                yield _event({**self.head, "object": self.form.part, "choices": [], "usage": self.usage()})
        except PeasyError as error:
            yield _event(openai_error(error))
        except Exception as error:
            logging.getLogger("peasy.studio").exception("a stream ended with a bug")
            yield _event(openai_error(Fault(f"This is a bug in peasy: {type(error).__name__}.")))
        yield b"data: [DONE]\n\n"

    def _opening(self) -> bytes:
        """What a stream begins with: who speaks, or the prompt where it is to be echoed."""
        if self.form.first is not None:
            return b"".join(self._event(place, {"delta": self.form.first, "logprobs": None}) for place, _ in self._all)
        if not getattr(self.asked, "echo", False):
            return b""
        words = self.session.loaded.need_tokenizer()
        return b"".join(
            self._event(place, {"text": words.decode(draft.prompt), "logprobs": None}) for place, draft in self._all
        )

    @property
    def _all(self) -> list[tuple[int, Draft]]:
        return list(enumerate(self.drafts))

    def _chunk(self, place: int, piece: Piece) -> bytes:
        made = self.form.delta(piece, self.asked, place)
        return self._event(place, made | _attention(piece, self.asked), piece.reason)

    def _event(self, place: int, made: dict[str, Any], reason: str | None = None) -> bytes:
        choice = {"index": place, **made, "finish_reason": reason}
        usage = {"usage": None} if self.asked.usage_told else {}
        return _event({**self.head, "object": self.form.part, "choices": [choice], **usage})


def _attention(piece: Piece, asked: Writing) -> dict[str, Any]:
    return {} if asked.attention is None else {"attention": piece.attention}


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(plain(data), ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _refuse_end(reason: str | None) -> None:
    """An end that nobody asked for is an error."""
    if reason == "cancelled":
        raise Refused(503, "This server is closing: the text is not whole.", hint="Ask again when it is back.")
    if reason not in (None, "stop", "length"):
        raise Refused(503, f"The text is not whole: {reason}.", hint="Ask again.")
