"""OpenAI-compatible /v1/completions and /v1/chat/completions, streaming or not."""

import json
import logging
import secrets
import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from peasy.commands.load import LoadedModel
from peasy.commands.result import JsonDict
from peasy.errors import InvalidInput, PeasyError
from peasy.generation.request import InternalError
from peasy.render.json import to_plain
from peasy.server.guard import HTTPRefusal
from peasy.server.openai_choice import ChoiceBuilder, ChoiceDelta, chat_logprobs, completion_logprobs
from peasy.server.openai_schema import ChatBody, CompletionBody, SamplingBody
from peasy.server.responses import openai_error
from peasy.server.session import LONG_PROMPT_CHARS, Session, open_session, run_until_disconnect

router = APIRouter(prefix="/v1")

_IGNORED_HEADER = "x-peasy-ignored"
"""Header that lists the fields of a request that have no effect."""

_DEFAULT_CHAT_TOKENS = 256
"""Default max_tokens of a chat completion."""


@router.post("/completions")
async def post_completions(request: Request, body: CompletionBody) -> Response:
    """Complete one or more prompts."""
    n = body.n or 1
    if body.best_of not in (None, n):
        raise InvalidInput("best_of must equal n: all choices are returned.", hint="Leave it out.")
    prompts = body.prompts()
    size = sum(len(prompt) for prompt in prompts)
    sampling = body.sampling_params(16 if body.max_tokens is None else max(body.max_tokens, 1), body.logprobs)

    def encode(loaded: LoadedModel) -> list[list[int]]:
        add = body.add_special_tokens is not False
        texts = (loaded.encode_prompt(p, add_special_tokens=add) if isinstance(p, str) else p for p in prompts)
        return list(texts)

    session = await open_session(request.app.state.registry, body, encode, size, sampling)
    return await _respond(request, body, _CompletionResponse(body, session))


@router.post("/chat/completions")
async def post_chat(request: Request, body: ChatBody) -> Response:
    """Return the model's next message in a conversation."""
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidInput("top_logprobs needs logprobs.", hint='Send "logprobs": true.')
    num_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    max_tokens = body.max_completion_tokens or body.max_tokens or _DEFAULT_CHAT_TOKENS
    messages = [message.for_template() for message in body.messages]
    sampling, registry = body.sampling_params(max_tokens, num_logprobs), request.app.state.registry
    # The template runs in a sandbox process, which takes a while: the size LONG keeps it off the event loop.
    size = LONG_PROMPT_CHARS
    session = await open_session(registry, body, lambda loaded: [loaded.encode_chat(messages)], size, sampling)
    return await _respond(request, body, _ChatResponse(body, session))


async def _respond(request: Request, body: SamplingBody, reply: "_CompletionResponse") -> Response:
    prompts = body.model_dump(include={"prompt", "messages"}) if request.app.state.log_prompts else {}
    logged = {"model": body.model, "stream": bool(body.stream)}
    request.state.log_fields = lambda: logged | reply.usage() | prompts
    headers = {_IGNORED_HEADER: ", ".join(body.ignored_fields)} if body.ignored_fields else {}
    if body.stream:
        return _CompletionStream(reply, headers)
    return JSONResponse(await run_until_disconnect(request, reply.complete()), headers=headers)


class _CompletionStream(StreamingResponse):
    """Streaming response that closes its session at the end, also when the client disconnects."""

    def __init__(self, response: "_CompletionResponse", headers: dict[str, str]) -> None:
        headers = headers | {"x-accel-buffering": "no"}
        super().__init__(response.stream(), media_type="text/event-stream", headers=headers)
        self.session = response.session

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.session.close()


class _CompletionResponse:
    """Response of /v1/completions, as one JSON object or as a stream of chunks."""

    id_prefix, object_type, chunk_type = "cmpl", "text_completion", "text_completion"
    first_delta: JsonDict | None = None

    def __init__(self, body: SamplingBody, session: Session) -> None:
        self.body, self.session = body, session
        self.common_fields = {
            "id": f"{self.id_prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": body.model,
        } | ({"notes": session.notes} if session.notes else {})
        loaded = session.loaded
        source_tokenizer = loaded.require_tokenizer()
        tokenizer = session.engine.tokenizer or source_tokenizer
        eos, logprobs = tokenizer.special_tokens.eos, getattr(body, "logprobs", None)
        self.logprobs = logprobs is not None and logprobs is not False
        stop_ids = frozenset([eos]) if isinstance(body, ChatBody) and eos is not None else frozenset[int]()
        echo = isinstance(body, CompletionBody) and bool(body.echo)
        self.choices = [
            ChoiceBuilder(
                tokenizer, source_tokenizer, ids, loaded.model.is_encoder_decoder, stop_ids, self.logprobs, echo,
                stream.prompt_logprobs,
            )
            for ids, stream in zip(session.prompts, session.streams, strict=True)
            for _ in range(session.n)
        ]  # fmt: skip

    def usage(self) -> JsonDict:
        num_prompt = sum(len(ids) for ids in self.session.prompts)
        num_generated = sum(len(choice.token_ids) for choice in self.choices)
        num_cached = sum(stream.num_cached_tokens for stream in self.session.streams)
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": num_generated,
            "total_tokens": num_prompt + num_generated,
            "prompt_tokens_details": {"cached_tokens": num_cached},
        }

    async def _deltas(self) -> AsyncIterator[list[tuple[int, ChoiceDelta]]]:
        """Yield new deltas with the index of their choice, until all choices are finished."""
        try:
            async for events in self.session.events():
                yield [(index, self.choices[index].add_event(event)) for index, event in events]
                if all(choice.finished for choice in self.choices):
                    return
        finally:
            self.session.close()

    async def complete(self) -> JsonDict:
        async for _ in self._deltas():
            pass
        for choice in self.choices:
            _raise_if_incomplete(choice.complete.finish_reason)
        choices = [
            {"index": index, **self._choice(choice.complete), "finish_reason": choice.complete.finish_reason}
            | self._attention(choice.complete)
            for index, choice in enumerate(self.choices)
        ]
        fields = {"object": self.object_type, "choices": choices, "usage": self.usage()}
        if self.body.ignored_fields:
            fields["note"] = f"Ignored: {', '.join(self.body.ignored_fields)}."
        reply = to_plain(self.common_fields | fields)
        assert isinstance(reply, dict)
        return reply

    def _choice(self, delta: ChoiceDelta) -> JsonDict:
        """Return the fields of a choice."""
        return {"text": delta.text, "logprobs": completion_logprobs(delta.tokens) if self.logprobs else None}

    def _delta(self, delta: ChoiceDelta) -> JsonDict:
        """Return the fields of a choice in a chunk of a stream."""
        return self._choice(delta)

    def _attention(self, delta: ChoiceDelta) -> JsonDict:
        return {} if self.body.attention is None else {"attention": delta.attention}

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield server-sent events; errors too are sent as events, and the stream always ends with [DONE]."""
        try:
            first, indices = self.first_delta, range(len(self.choices))
            yield b"" if first is None else b"".join(self._chunk_event(index, {"delta": first}) for index in indices)
            async for deltas in self._deltas():
                for _, delta in deltas:
                    _raise_if_incomplete(delta.finish_reason)
                chunks = (
                    self._chunk_event(index, self._delta(delta) | self._attention(delta), delta.finish_reason)
                    for index, delta in deltas
                    if delta
                )
                yield b"".join(chunks) if deltas else b": keep-alive\n\n"
            if self.body.include_usage:
                yield self._event({"choices": [], "usage": self.usage()})
        except PeasyError as error:
            yield _server_sent_event(openai_error(error))
        except Exception as error:
            logging.getLogger("peasy.server").exception("unhandled exception in a stream")
            yield _server_sent_event(openai_error(InternalError(f"This is a bug in peasy: {type(error).__name__}.")))
        yield b"data: [DONE]\n\n"

    def _chunk_event(self, index: int, fields: JsonDict, finish_reason: str | None = None) -> bytes:
        choice = {"index": index, "logprobs": None, **fields, "finish_reason": finish_reason}
        usage = {"usage": None} if self.body.include_usage else {}
        return self._event({"choices": [choice], **usage})

    def _event(self, fields: JsonDict) -> bytes:
        return _server_sent_event({**self.common_fields, "object": self.chunk_type, **fields})


class _ChatResponse(_CompletionResponse):
    """Response of /v1/chat/completions."""

    id_prefix, object_type, chunk_type = "chatcmpl", "chat.completion", "chat.completion.chunk"
    first_delta: JsonDict = {"role": "assistant", "content": ""}  # noqa: RUF012

    def _choice(self, delta: ChoiceDelta) -> JsonDict:
        message = {"role": "assistant", "content": delta.text, "refusal": None}
        return {"message": message, "logprobs": chat_logprobs(delta.tokens) if self.logprobs else None}

    def _delta(self, delta: ChoiceDelta) -> JsonDict:
        content = {"content": delta.text} if delta.text or not delta.finish_reason else {}
        return {"delta": content, "logprobs": chat_logprobs(delta.tokens) if self.logprobs and delta.tokens else None}


def _server_sent_event(data: JsonDict) -> bytes:
    return f"data: {json.dumps(to_plain(data), ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


def _raise_if_incomplete(finish_reason: str | None) -> None:
    """Raise if generation ended for any reason but stop or length."""
    if finish_reason == "cancelled":
        raise HTTPRefusal(503, "This server is shutting down; the text is incomplete.", hint="Retry when it is back.")
    if finish_reason not in (None, "stop", "length"):
        raise HTTPRefusal(503, f"The text is incomplete: {finish_reason}.", hint="Retry.")
