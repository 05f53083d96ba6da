"""Subset of the shipped font (DejaVu Sans) as WOFF for an SVG: text looks the same where that font is not installed.

Glyphs keep their numbers; those that no character needs become empty, which compresses to almost nothing.
"""

import base64
import struct
import zlib
from functools import cache
from pathlib import Path

FAMILY = "peasy DejaVu Sans"
"""Family of the embedded font: not a name that a system has, so that what is seen is what is embedded."""

_TABLES = (b"OS/2", b"cmap", b"cvt ", b"fpgm", b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp", b"prep")
_NO_NAMES = {b"name": struct.pack(">HHH", 0, 0, 6), b"post": struct.pack(">I28x", 0x00030000)}
"""Tables without names of the font and of its glyphs; browsers ask that the tables exist."""
_HAS_MORE, _WIDE_ARGUMENTS = 0x20, 0x01
_SCALES = {0x08: 2, 0x40: 4, 0x80: 8}
"""Bytes of the scale that a component of a composite glyph has, by flag."""


def font_face(text: str) -> str:
    """Return the CSS rule that embeds the shipped font, with the characters of a text only.

    >>> font_face("pizza")[:50], len(font_face("pizza")) < 8_000
    ('@font-face{font-family:"peasy DejaVu Sans";src:url', True)
    """
    data = base64.b64encode(_woff_subset(frozenset(text))).decode("ascii")
    return f'@font-face{{font-family:"{FAMILY}";src:url(data:font/woff;base64,{data})}}'


@cache
def _woff_subset(characters: frozenset[str]) -> bytes:
    """Return the shipped font as WOFF, with the outlines of these characters (and of their parts) alone."""
    data = Path(__file__).with_name("fonts").joinpath("DejaVuSans.ttf").read_bytes()
    entries = (struct.unpack_from(">4sIII", data, 12 + 16 * number) for number in range(int.from_bytes(data[4:6])))
    tables = {tag: data[offset : offset + length] for tag, _, offset, length in entries if tag in _TABLES}
    count = len(tables[b"loca"]) // 4
    offsets, outlines = struct.unpack(f">{count}I", tables[b"loca"]), tables[b"glyf"]
    glyphs = {code: glyph for code, glyph in _character_map(tables[b"cmap"]).items() if chr(code) in characters}
    kept, waiting = {0}, [*glyphs.values()]
    while waiting:
        glyph = waiting.pop()
        kept.add(glyph)
        waiting += [part for part in _components(outlines[offsets[glyph] : offsets[glyph + 1]]) if part not in kept]
    glyf, loca, widths = bytearray(), [0], bytearray(tables[b"hmtx"])
    for glyph in range(count - 1):
        if glyph in kept:
            glyf += outlines[offsets[glyph] : offsets[glyph + 1]]
        else:
            widths[4 * glyph : 4 * glyph + 4] = bytes(len(widths[4 * glyph : 4 * glyph + 4]))
        loca.append(len(glyf))
    groups = b"".join(struct.pack(">III", code, code, glyph) for code, glyph in sorted(glyphs.items()))
    cmap = struct.pack(">HHHHIHHIII", 0, 1, 3, 10, 12, 12, 0, 16 + len(groups), 0, len(glyphs)) + groups
    changed = {b"glyf": bytes(glyf), b"loca": struct.pack(f">{count}I", *loca), b"hmtx": bytes(widths), b"cmap": cmap}
    return _pack_woff(tables | changed | _NO_NAMES)


def _character_map(cmap: bytes) -> dict[int, int]:
    """Return the glyph of each code point, from the table of format 12, which has all of Unicode."""
    starts = (struct.unpack_from(">HHI", cmap, 4 + 8 * number)[2] for number in range(int.from_bytes(cmap[2:4])))
    start = next(start for start in starts if int.from_bytes(cmap[start : start + 2]) == 12)
    groups = int.from_bytes(cmap[start + 12 : start + 16])
    ranges = (struct.unpack_from(">III", cmap, start + 16 + 12 * number) for number in range(groups))
    return {code: glyph + code - first for first, last, glyph in ranges for code in range(first, last + 1)}


def _components(outline: bytes) -> list[int]:
    """Return the glyphs that a composite glyph is made of, such as e and an accent."""
    parts, at = list[int](), 10
    if not outline or struct.unpack_from(">h", outline)[0] >= 0:
        return parts
    while True:
        flags, glyph = struct.unpack_from(">HH", outline, at)
        parts.append(glyph)
        at += 8 if flags & _WIDE_ARGUMENTS else 6
        at += sum(size for flag, size in _SCALES.items() if flags & flag)
        if not flags & _HAS_MORE:
            return parts


def _pack_woff(tables: dict[bytes, bytes]) -> bytes:
    """Pack the tables of a TrueType font as WOFF 1: each compressed, if that makes it shorter."""
    offset, entries, body = 44 + 20 * len(tables), b"", b""
    for tag, table in sorted(tables.items()):
        packed = min(zlib.compress(table, 9), table, key=len)
        padded = table + bytes(-len(table) % 4)
        checksum = sum(struct.unpack(f">{len(padded) // 4}I", padded)) & 0xFFFFFFFF
        entries += struct.pack(">4sIIII", tag, offset + len(body), len(packed), len(table), checksum)
        body += packed + bytes(-len(packed) % 4)
    unpacked = 12 + 16 * len(tables) + sum(len(table) + -len(table) % 4 for table in tables.values())
    sizes = 0x00010000, offset + len(body), len(tables), 0, unpacked, 1, 0, 0, 0, 0, 0, 0
    return b"wOFF" + struct.pack(">IIHHIHHIIIII", *sizes) + entries + body
