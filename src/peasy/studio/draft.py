"""What a choice of /v1 looks like: text, chances and attention of its tokens, put together piece by piece."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from peasy.text import Tokenizer

if TYPE_CHECKING:
    from peasy.generation.request import Event, Token

REASONS = {"end": "stop", "stop": "stop", "length": "length"}
"""Why a text ended, in the words of the common clients. Other ends are errors."""


@dataclass(eq=False)
class Piece:
    """What one event adds to a choice, or all events together."""

    text: str = ""
    tokens: list[dict[str, Any]] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None

    def add(self, other: "Piece") -> None:
        """The same with what came after it."""
        self.text += other.text
        self.tokens += other.tokens
        self.attention += other.attention
        self.reason = other.reason or self.reason

    def __bool__(self) -> bool:
        return bool(self.text or self.tokens or self.attention or self.reason)


@dataclass(eq=False)
class Draft:
    """One choice while it is written. `ends` are tokens that end it besides those that the engine knows."""

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
        """Is it whole?"""
        return self.whole.reason is not None

    def hear(self, event: "Event") -> Piece:
        """What this event adds; an error is raised."""
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
        """A token as text; half a character as the common servers write it, so that no two look alike."""
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
        """A key with its token: of the source, of the prompt, or of what was written."""
        if part == "cross_attention":
            return {"place": place, "token": self.source.piece(self.prompt[place]), "weight": weight}
        before = 1 if self.crosses else len(self.prompt)  # a translator's answer begins with its start token
        if place >= before:
            piece = self.tokenizer.piece(self.ids[place - before])
        else:
            piece = "<start>" if self.crosses else self.tokenizer.piece(self.prompt[place])
        return {"place": place, "token": piece, "weight": weight}


def completion_logprobs(tokens: Sequence[dict[str, Any]], start: int = 0) -> dict[str, Any]:
    """Chances in the form of completions."""
    return {
        "tokens": [each["token"] for each in tokens],
        "token_logprobs": [each["logprob"] for each in tokens],
        "top_logprobs": [{other["token"]: other["logprob"] for other in each["top"]} for each in tokens],
        "text_offset": [start + each["offset"] for each in tokens],
    }


def chat_logprobs(tokens: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Chances in the form of chats."""
    kept = ("token", "logprob", "bytes")
    rows = [
        {key: each[key] for key in kept} | {"top_logprobs": [{k: o[k] for k in kept} for o in each["top"]]}
        for each in tokens
    ]
    return {"content": rows, "refusal": None}
