"""Choices of /v1 responses: text, logprobs and attention, accumulated from the engine's events."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from peasy.commands.result import JsonDict
from peasy.generation.request import Ended, Event, Token
from peasy.generation.sampling import SampledToken
from peasy.tokenization import Tokenizer

_FINISH_REASONS = {"eos": "stop", "stop": "stop", "length": "length"}
"""OpenAI's finish_reason for each of the engine's. Other reasons are errors."""

_MIN_LOGPROB = -9999.0
"""Log-probability of an impossible token, as in OpenAI's API: JSON has no infinity."""


@dataclass(eq=False)
class ChoiceDelta:
    """Delta of one choice: what one event adds, or the sum of all events."""

    text: str = ""
    tokens: list[JsonDict] = field(default_factory=list)
    attention: list[JsonDict] = field(default_factory=list)
    finish_reason: str | None = None

    def append(self, delta: "ChoiceDelta") -> None:
        """Append the next delta."""
        self.text += delta.text
        self.tokens += delta.tokens
        self.attention += delta.attention
        self.finish_reason = delta.finish_reason or self.finish_reason

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.attention or self.finish_reason)


@dataclass(eq=False)
class ChoiceBuilder:
    """Builder of one choice. `stop_token_ids` are stop tokens in addition to the engine's.

    Tokens with their log-probabilities are returned together with their text: special tokens and stop strings are in
    neither. With `echo`, the prompt comes first, scored by the engine's `prompt_logprobs`, and special tokens are
    listed too, so that there is one entry for each token.
    """

    tokenizer: Tokenizer
    source_tokenizer: Tokenizer
    prompt: Sequence[int]
    is_encoder_decoder: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    with_logprobs: bool = False
    echo: bool = False
    prompt_logprobs: Sequence[SampledToken | None] = ()
    complete: ChoiceDelta = field(default_factory=ChoiceDelta)
    token_ids: list[int] = field(default_factory=list)
    text_length: int = 0
    pending_tokens: list[JsonDict] = field(default_factory=list)
    num_chars: int = 0
    utf8: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _began: bool = False

    def __post_init__(self) -> None:
        prompt = () if self.is_encoder_decoder or self.echo else self.prompt
        self.is_first = self.with_logprobs and not self.tokenizer.decode(prompt)
        self.run, self.before_run, self.run_start, self.is_broken = list[int](), list(prompt), 0, False

    @property
    def finished(self) -> bool:
        """True once the choice has a finish reason."""
        return self.complete.finish_reason is not None

    def add_event(self, event: Event) -> ChoiceDelta:
        """Add an event and return its delta; raise if the event carries an error."""
        if self.finished:
            return ChoiceDelta()
        if isinstance(event, Ended) and event.error is not None:
            raise event.error
        piece = ChoiceDelta()
        if self.echo and not self._began:  # the prompt, with log-probabilities if asked for; its first token has none
            scored = map(self._scored_fields, self.prompt, self.prompt_logprobs)
            piece = ChoiceDelta(self.source_tokenizer.decode(self.prompt), list(scored))
        self._began = True
        if isinstance(event, Ended):
            reason = _FINISH_REASONS.get(event.reason, event.reason)
            piece.append(ChoiceDelta(event.text, finish_reason=reason))
        else:
            piece.append(self._token_delta(event))
        self.text_length += len(piece.text)
        lists_all = self.echo and isinstance(event, Ended)
        while self.pending_tokens and (lists_all or self.pending_tokens[0]["offset"] < self.text_length):
            piece.tokens.append(self.pending_tokens.pop(0))
        self.complete.append(piece)
        return piece

    def _token_delta(self, token: Token) -> ChoiceDelta:
        self.token_ids.append(token.sampled.id)
        piece = ChoiceDelta(token.text, finish_reason="stop" if token.sampled.id in self.stop_token_ids else None)
        if self.with_logprobs and (self.echo or not self.tokenizer.is_special(token.sampled.id)):
            self.pending_tokens.append(self._scored_fields(token.sampled.id, token.sampled))
        if token.attention:
            piece.attention.append(self._attention_entry(token))
        return piece

    def _scored_fields(self, id: int, scored: SampledToken | None) -> JsonDict:
        """Return a token with its log-probability and its offset in the text, which then goes on after it."""
        token = self._token_fields(id)
        if not token["token"].startswith("bytes:"):
            if self.is_broken or self.utf8.getstate()[0]:
                # only the tokenizer knows how many replacement characters it writes for these bytes
                self.num_chars = self.run_start + len(self.tokenizer.decode_continuation(self.before_run, self.run))
            self.before_run, self.run, self.run_start = self.run[-1:] or self.before_run, [], self.num_chars
            self.utf8.reset()
            self.is_broken = False
        fields: JsonDict = {**token, "logprob": None, "top": None, "offset": self.num_chars}
        if scored is not None and scored.logprob is not None:
            others = [{**self._token_fields(other.id), "logprob": other.logprob} for other in scored.top_logprobs]
            fields |= {"logprob": max(scored.logprob, _MIN_LOGPROB), "top": others}
        if not self.tokenizer.is_special(id):
            text = self.utf8.decode(self.tokenizer.to_bytes(id, is_first=self.is_first))
            self.num_chars += len(text)
            self.run.append(id)
            self.is_first, self.is_broken = False, self.is_broken or "\ufffd" in text
        return fields

    def _token_fields(self, id: int) -> JsonDict:
        """Return a token as text; an incomplete character as OpenAI writes it (bytes:\\xe2), so that tokens differ."""
        raw = self.tokenizer.to_bytes(id, is_first=self.is_first)
        try:
            text = self.tokenizer.piece(id) if self.tokenizer.is_special(id) else raw.decode()
        except UnicodeDecodeError:
            text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return {"token": text, "bytes": list(raw or text.encode())}

    def _attention_entry(self, token: Token) -> JsonDict:
        heads: list[JsonDict] = []
        for layer in token.attention:
            part, rows = layer.path.part, zip(layer.heads, layer.keys.tolist(), layer.weights.tolist(), strict=True)
            for head, keys, weights in rows:
                top = [self._key_entry(part, *key) for key in zip(keys, weights, strict=True) if key[1] > 0]
                heads.append({"part": part, "layer": layer.path.layer, "head": head, "keys": top})
        return {"token": self.tokenizer.piece(token.sampled.id), "position": token.index, "heads": heads}

    def _key_entry(self, part: str, position: int, weight: float) -> JsonDict:
        """Return a key with its token, which is from the source, the prompt or the generated text."""
        if part == "cross_attention":
            return {"position": position, "token": self.source_tokenizer.piece(self.prompt[position]), "weight": weight}
        # The output of an encoder-decoder begins with decoder_start.
        start = 1 if self.is_encoder_decoder else len(self.prompt)
        if position >= start:
            piece = self.tokenizer.piece(self.token_ids[position - start])
        else:
            piece = "<start>" if self.is_encoder_decoder else self.tokenizer.piece(self.prompt[position])
        return {"position": position, "token": piece, "weight": weight}


def completion_logprobs(tokens: Sequence[JsonDict]) -> JsonDict:
    """Return logprobs in the format of /v1/completions."""
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [None if token["top"] is None else _by_text(token["top"]) for token in tokens],
        "text_offset": [token["offset"] for token in tokens],
    }


def _by_text(top: Sequence[JsonDict]) -> dict[str, float]:
    """Return log-probabilities by the text of the token; of two tokens with the same text, the more likely one's."""
    logprobs: dict[str, float] = {}
    for other in top:
        logprobs.setdefault(other["token"], other["logprob"])
    return logprobs


def chat_logprobs(tokens: Sequence[JsonDict]) -> JsonDict:
    """Return logprobs in the format of /v1/chat/completions."""
    keys = ("token", "logprob", "bytes")
    rows = []
    for token in tokens:
        others = [{key: other[key] for key in keys} for other in token["top"]]
        rows.append({key: token[key] for key in keys} | {"top_logprobs": others})
    return {"content": rows, "refusal": None}
