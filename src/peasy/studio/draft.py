"""Choices of /v1 responses: text, logprobs and attention, accumulated from the engine's events."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peasy.text import Tokenizer

if TYPE_CHECKING:
    from peasy.generation.request import Event, Token

REASONS = {"end": "stop", "stop": "stop", "length": "length"}
"""OpenAI's finish_reason for each of the engine's. Other reasons are errors."""


@dataclass(eq=False)
class Piece:
    """Delta of one choice: what one event adds, or the sum of all events."""

    text: str = ""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None

    def add(self, other: "Piece") -> None:
        """Append the next delta."""
        self.text += other.text
        self.tokens += other.tokens
        self.attention += other.attention
        self.reason = other.reason or self.reason

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.attention or self.reason)


@dataclass(eq=False)
class Draft:
    """Builder of one choice. `ends` are stop tokens in addition to the engine's."""

    tokenizer: Tokenizer
    source: Tokenizer
    prompt: Sequence[int]
    crosses: bool = False
    ends: frozenset[int] = frozenset()
    chances: bool = False
    whole: Piece = field(default_factory=Piece)
    ids: list[int] = field(default_factory=list)
    length: int = 0

    @property
    def over(self) -> bool:
        """True once the choice has a finish reason."""
        return self.whole.reason is not None

    def hear(self, event: "Event") -> Piece:
        """Add an event and return its delta; raise if the event carries an error."""
        from peasy.generation.request import Ended

        if self.over:
            return Piece()
        if isinstance(event, Ended):
            piece = Piece(event.text, reason=REASONS.get(event.reason, event.reason))
            if event.error is not None:
                raise event.error
        else:
            piece = self._token(event)
        self.whole.add(piece)
        return piece

    def _token(self, token: "Token") -> Piece:
        self.ids.append(token.chosen.id)
        piece = Piece(token.text, reason="stop" if token.chosen.id in self.ends else None)
        if self.chances:
            piece.tokens.append(self._chance(token))
        if token.looked:
            piece.attention.append(self._looked(token))
        self.length += len(token.text)
        return piece

    def _chance(self, token: "Token") -> dict[str, Any]:
        others = [{**self._named(other.id), "logprob": other.logprob} for other in token.chosen.candidates]
        return {**self._named(token.chosen.id), "logprob": token.chosen.logprob, "top": others, "offset": self.length}

    def _named(self, id: int) -> dict[str, Any]:
        """Return a token as text; an incomplete character as OpenAI writes it (bytes:\\xe2), so that tokens differ."""
        raw = self.tokenizer.to_bytes(id) if self.tokenizer.byte_level else self.tokenizer.decode([id]).encode()
        try:
            text = raw.decode() or self.tokenizer.token(id) or f"<{id}>"
        except UnicodeDecodeError:
            text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
        return {"token": text, "bytes": list(raw or text.encode())}

    def _looked(self, token: "Token") -> dict[str, Any]:
        heads = [
            {"part": part, "layer": layer, "head": head, "keys": [self._key(part, *key) for key in keys]}
            for part, layer, head, keys in token.looked
        ]
        return {"token": self.tokenizer.piece(token.chosen.id), "place": token.place, "heads": heads}

    def _key(self, part: str, place: int, weight: float) -> dict[str, Any]:
        """Return a key with its token, which is from the source, the prompt or the generated text."""
        if part == "cross_attention":
            return {"place": place, "token": self.source.piece(self.prompt[place]), "weight": weight}
        start = 1 if self.crosses else len(self.prompt)  # an encoder-decoder's output begins with decoder_start
        if place >= start:
            piece = self.tokenizer.piece(self.ids[place - start])
        else:
            piece = "<start>" if self.crosses else self.tokenizer.piece(self.prompt[place])
        return {"place": place, "token": piece, "weight": weight}


def completion_logprobs(tokens: Sequence[dict[str, Any]], start: int = 0) -> dict[str, Any]:
    """Return logprobs in the format of /v1/completions."""
    return {
        "tokens": [token["token"] for token in tokens],
        "token_logprobs": [token["logprob"] for token in tokens],
        "top_logprobs": [{other["token"]: other["logprob"] for other in token["top"]} for token in tokens],
        "text_offset": [start + token["offset"] for token in tokens],
    }


def chat_logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return logprobs in the format of /v1/chat/completions."""
    keys = ("token", "logprob", "bytes")
    rows = [
        {key: token[key] for key in keys}
        | {"top_logprobs": [{key: other[key] for key in keys} for other in token["top"]]}
        for token in tokens
    ]
    return {"content": rows, "refusal": None}
