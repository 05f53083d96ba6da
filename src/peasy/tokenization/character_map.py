"""Character map of a sentencepiece model: replaces the longest match at each position, as sentencepiece does.

The `Precompiled` normalizer of the `tokenizers` library looks at one grapheme at a time and takes the shortest match:
decomposed text (NFD) gets other ids there.
"""

import base64
import re
from array import array
from collections.abc import Sequence

from peasy.config import JsonDict
from peasy.errors import InvalidInput

_VALUE, _LABEL = 0x7FFFFFFF, 0x800000FF
_MAX_CACHE = 100_000
_NOWHERE = (-1, -1)
_ASCII = [chr(code) for code in range(32, 127)]


class CharacterMap:
    """Character map: a trie of UTF-8 bytes (a double array), and replacements that end with a zero byte.

    `kept`: tokens that are not changed.
    """

    def __init__(self, data: bytes, kept: Sequence[str] = ()) -> None:
        size = int.from_bytes(data[:4], "little")
        self._units = array("I", data[4 : 4 + size])
        self._replacements = data[4 + size :]
        self._cache: dict[tuple[int, str], tuple[int, int]] = {}
        longest_first = sorted(kept, key=len, reverse=True)
        self._kept = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        is_plain = all(self._longest(a + b, 0, 2)[0] == a for a in _ASCII for b in _ASCII)
        self._unchanged = re.compile(r"[ -~]+(?=[ -~]|\Z)" if is_plain else "(?!)")

    def normalise(self, text: str) -> tuple[str, list[int]]:
        """Return the text with its replacements, and for each of its characters the one of `text` it comes from."""
        parts, sources, start = list[str](), list[int](), 0
        for match in [*self._kept.finditer(text), None]:
            end = match.start() if match else len(text)
            while start < end:
                if plain := self._unchanged.match(text, start, end):
                    part, stop = plain[0], plain.end()
                    sources += range(start, stop)
                else:
                    part, stop = self._longest(text, start, end)
                    sources += [start] * len(part)
                parts.append(part)
                start = stop
            if match:
                parts.append(match[0])
                sources += range(match.start(), match.end())
                start = match.end()
        return "".join(parts), [*sources, len(text)]

    def _longest(self, text: str, start: int, end: int) -> tuple[str, int]:
        """Return what the longest match at `start` becomes, and where it ends; without a match, the character."""
        node, best, stop = 0, -1, start + 1
        for at in range(start, end):
            key = (node, text[at])
            if key not in self._cache:
                self._cache = {} if len(self._cache) >= _MAX_CACHE else self._cache
                self._cache[key] = self._step(*key)
            node, value = self._cache[key]
            if value >= 0:
                best, stop = value, at + 1
            if node < 0:
                break
        if best < 0:
            return text[start], stop
        end = self._replacements.find(b"\0", best)
        return self._replacements[best : max(end, best)].decode("utf-8", errors="replace"), stop

    def _step(self, node: int, char: str) -> tuple[int, int]:
        """Return the node after a character and the replacement that a match ending there has, or -1."""
        try:
            unit = self._units[node]
            at = node ^ _offset(unit)
            for byte in char.encode():
                node = at ^ byte
                unit = self._units[node]
                if unit & _LABEL != byte:
                    return _NOWHERE
                at = node ^ _offset(unit)
            return node, self._units[at] & _VALUE if unit >> 8 & 1 else -1
        except IndexError:
            raise InvalidInput("The character map of the tokenizer is damaged.") from None


def _offset(unit: int) -> int:
    return unit >> 10 << (unit >> 6 & 8)


def find_character_map(data: JsonDict) -> CharacterMap | None:
    """Return the character map of a validated tokenizer.json, if its first normalizer is one."""
    steps = (data.get("normalizer") or {}).get("normalizers") or [{}]
    if steps[0].get("type") != "Precompiled":
        return None
    kept = [str(token["content"]) for token in data.get("added_tokens") or ()]
    return CharacterMap(base64.b64decode(steps[0]["precompiled_charsmap"]), kept)
