"""A tokenizer.json from somewhere else, looked through before the library may build from it.

What only makes sense in somebody's training run (padding, cutting off, dropout) is taken out. What can
turn a short text into endless work is refused: patterns, replacements that multiply, words without limit.
"""

import math
from collections.abc import Iterator
from typing import Any

from peasy.errors import InvalidInput
from peasy.text.pattern import text_limit

MOST_GROWTH = 32
"""By how much the replacements of a tokenizer may lengthen a text, all together."""

MOST_WORD = 1_000
MOST_PIECE = 4_096
_MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")


def checked(data: Any) -> tuple[dict[str, Any], int | None]:
    """The data that are safe to build from, and how many characters a text may have (None: any number)."""
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise InvalidInput("It is not a tokenizer.json: there is no model in it.")
    _check_model(data["model"])
    _check_added(data.get("added_tokens") or [])
    limits = [limit for part in _parts(data) for limit in [_check_part(part)] if limit is not None]
    for chain in ("normalizer", "decoder"):
        growth = math.prod(_growth(part) for part in _walk(data.get(chain)))
        if growth > MOST_GROWTH:
            raise InvalidInput(f"Its {chain} can make a text {growth:,.0f} times as long; {MOST_GROWTH} is the most.")
    model = data["model"] | ({"dropout": None} if data["model"].get("dropout") is not None else {})
    return data | {"model": model, "truncation": None, "padding": None}, min(limits, default=None)


def kinds(data: dict[str, Any], chain: str) -> list[str]:
    """The types of the parts of a chain, in order.

    >>> kinds({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]}}, "decoder")
    ['Fuse']
    """
    return [str(part.get("type")) for part in _walk(data.get(chain))]


def _parts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for chain in ("normalizer", "pre_tokenizer", "decoder"):
        yield from _walk(data.get(chain))


def _walk(part: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    if part is None:
        return
    if not isinstance(part, dict) or depth > 8:
        raise InvalidInput("A step of it is not a table, or its steps are nested too deeply.")
    inner = next((part[key] for key in ("normalizers", "pretokenizers", "decoders") if key in part), None)
    if part.get("type") != "Sequence":
        yield part
    elif not isinstance(inner, list) or len(inner) > 64:
        raise InvalidInput("A sequence of it should list at most 64 steps.")
    else:
        for step in inner:
            yield from _walk(step, depth + 1)


def _check_part(part: dict[str, Any]) -> int | None:
    pattern = part.get("pattern")
    if pattern is None:
        return None
    if not isinstance(pattern, dict) or len(pattern) != 1 or not isinstance(next(iter(pattern.values())), str):
        raise InvalidInput(f"The pattern of its {part.get('type')} should be one String or one Regex.")
    kind, text = next(iter(pattern.items()))
    if not text:
        raise InvalidInput(f"The pattern of its {part.get('type')} is empty.")
    return text_limit(text) if kind == "Regex" else None


def _growth(part: dict[str, Any]) -> float:
    """How much longer a text can get in this step: a pattern may match one character, or the gap between two."""
    if part.get("type") != "Replace":
        return 1
    content = part.get("content")
    if not isinstance(content, str):
        raise InvalidInput("The content of its Replace should be text.")
    pattern = part.get("pattern") or {}
    if "String" in pattern:
        return max(1.0, len(content) / len(pattern["String"]))
    return 1 + len(content)


def _check_model(model: dict[str, Any]) -> None:
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    if kind is not None and kind not in _MODELS:
        raise InvalidInput(f"Its model is of type {str(kind)[:40]!r}; known are {', '.join(_MODELS)}.")
    most = model.get("max_input_chars_per_word")
    if most is not None and (type(most) is not int or not 0 < most <= MOST_WORD):
        raise InvalidInput(f"Its max_input_chars_per_word is {str(most)[:40]}; 1 to {MOST_WORD:,} are allowed.")
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, (dict, list)) or not vocabulary:
        raise InvalidInput("Its model has no vocab.")
    if isinstance(vocabulary, dict):
        _check_ids(vocabulary)
    pieces = vocabulary if isinstance(vocabulary, dict) else [entry[0] for entry in vocabulary if _is_scored(entry)]
    if len(pieces) != len(vocabulary):
        raise InvalidInput("Its vocab should list pairs of a piece and a score.")
    if max(map(len, pieces)) > MOST_PIECE:
        raise InvalidInput(f"Its vocab has a piece of more than {MOST_PIECE:,} characters.")


def _check_ids(vocabulary: dict[str, Any]) -> None:
    """Ids are rows of a table of weights: a gap may be there (somebody removed a piece), a wild number may not."""
    most = 2 * len(vocabulary) + 100_000
    for piece, number in vocabulary.items():
        if type(number) is not int or not 0 <= number < most:
            raise InvalidInput(f"The id of {piece[:40]!r} is {str(number)[:40]}; 0 to {most - 1:,} are possible here.")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise InvalidInput("Two pieces of its vocab have the same id.")


def _is_scored(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], (int, float))
        and abs(entry[1]) < 1e30
    )


def _check_added(added: Any) -> None:
    for token in added if isinstance(added, list) else [None]:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or not token["content"]:
            raise InvalidInput("Its added_tokens should be a list of tokens with some content each.")
