"""Validates an untrusted tokenizer.json before the library builds a tokenizer from it.

Options of a training run (padding, truncation, dropout) are removed. Anything that could make a short text
expensive is rejected: unsafe patterns, growing replacements, unlimited words.
"""

import math
from collections.abc import Iterator
from typing import Any, TypeGuard

from peasy.errors import InvalidInput
from peasy.tokenization.regex_safety import max_text_chars

JsonDict = dict[str, Any]
"""JSON object, such as the contents of a tokenizer.json."""

_MAX_GROWTH = 32
"""Maximum factor by which all replacements of a tokenizer together may lengthen a text."""

_MAX_WORD_CHARS = 1_000
_MAX_TOKEN_CHARS = 4_096
_MODELS = ("BPE", "WordPiece", "WordLevel", "Unigram")


def validate_tokenizer_json(data: object) -> tuple[JsonDict, int | None]:
    """Return the validated data, and the maximum number of characters of a text (None: unlimited)."""
    if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
        raise InvalidInput("Not a tokenizer.json: it has no model.")
    _check_model(data["model"])
    _check_added(data.get("added_tokens") or [])
    steps = [step for chain in ("normalizer", "pre_tokenizer", "decoder") for step in _walk(data.get(chain))]
    limits = [limit for limit in map(_check_component, steps) if limit is not None]
    for chain in ("normalizer", "decoder"):
        growth = math.prod(_max_growth(part) for part in _walk(data.get(chain)))
        if growth > _MAX_GROWTH:
            raise InvalidInput(f"Its {chain} can make a text {growth:,.0f} times as long; the limit is {_MAX_GROWTH}.")
    model = data["model"] | ({"dropout": None} if data["model"].get("dropout") is not None else {})
    return data | {"model": model, "truncation": None, "padding": None}, min(limits, default=None)


def component_types(data: JsonDict, section: str) -> list[str]:
    """Return the types of the components of a pipeline section, in order.

    >>> component_types({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}]}}, "decoder")
    ['Fuse']
    """
    return [str(part.get("type")) for part in _walk(data.get(section))]


def _walk(component: object, depth: int = 0) -> Iterator[JsonDict]:
    if component is None:
        return
    if not isinstance(component, dict) or depth > 8:
        raise InvalidInput("A step is not a JSON object, or steps are nested too deeply.")
    inner = next((component[key] for key in ("normalizers", "pretokenizers", "decoders") if key in component), None)
    if component.get("type") != "Sequence":
        yield component
    elif not isinstance(inner, list) or len(inner) > 64:
        raise InvalidInput("A Sequence should be a list of at most 64 steps.")
    else:
        for step in inner:
            yield from _walk(step, depth + 1)


def _check_component(component: JsonDict) -> int | None:
    pattern = component.get("pattern")
    if pattern is None:
        return None
    if not isinstance(pattern, dict) or len(pattern) != 1 or not isinstance(next(iter(pattern.values())), str):
        raise InvalidInput(f"The pattern of its {component.get('type')} should be one String or one Regex.")
    kind, text = next(iter(pattern.items()))
    if not text:
        raise InvalidInput(f"The pattern of its {component.get('type')} is empty.")
    return max_text_chars(text) if kind == "Regex" else None


def _max_growth(component: JsonDict) -> float:
    """Return the maximum growth factor of a text in this step; a pattern may match one character or an empty string."""
    if component.get("type") != "Replace":
        return 1
    content = component.get("content")
    if not isinstance(content, str):
        raise InvalidInput("The content of its Replace should be text.")
    pattern = component.get("pattern") or {}
    if "String" in pattern:
        return max(1.0, len(content) / len(pattern["String"]))
    return 1 + len(content)


def _check_model(model: JsonDict) -> None:
    kind = model.get("type") or ("BPE" if "merges" in model else None)
    if kind is not None and kind not in _MODELS:
        raise InvalidInput(f"Its model has type {str(kind)[:40]!r}; supported are {', '.join(_MODELS)}.")
    max_chars = model.get("max_input_chars_per_word")
    if max_chars is not None and (type(max_chars) is not int or not 0 < max_chars <= _MAX_WORD_CHARS):
        raise InvalidInput(
            f"Its max_input_chars_per_word is {str(max_chars)[:40]}; 1 to {_MAX_WORD_CHARS:,} are allowed."
        )
    vocabulary = model.get("vocab")
    if not isinstance(vocabulary, (dict, list)) or not vocabulary:
        raise InvalidInput("Its model has no vocab.")
    if isinstance(vocabulary, dict):
        _check_ids(vocabulary)
    pieces = vocabulary if isinstance(vocabulary, dict) else [entry[0] for entry in vocabulary if _is_scored(entry)]
    if len(pieces) != len(vocabulary):
        raise InvalidInput("Its vocab should list pairs of a piece and a score.")
    if max(map(len, pieces)) > _MAX_TOKEN_CHARS:
        raise InvalidInput(f"Its vocab has a piece of more than {_MAX_TOKEN_CHARS:,} characters.")


def _check_ids(vocabulary: JsonDict) -> None:
    """Check that ids are unique and not huge, since they index the embedding; gaps (removed tokens) are allowed."""
    limit = 2 * len(vocabulary) + 100_000
    for piece, id in vocabulary.items():
        if type(id) is not int or not 0 <= id < limit:
            raise InvalidInput(f"The id of {piece[:40]!r} is {str(id)[:40]}; it should be 0 to {limit - 1:,}.")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise InvalidInput("Two pieces of its vocab have the same id.")


def _is_scored(entry: object) -> TypeGuard[list[str | float]]:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and isinstance(entry[1], (int, float))
        and abs(entry[1]) < 1e30
    )


def _check_added(added: object) -> None:
    for token in added if isinstance(added, list) else [None]:
        if not isinstance(token, dict) or not isinstance(token.get("content"), str) or not token["content"]:
            raise InvalidInput("Its added_tokens should be a list of tokens with non-empty content.")
