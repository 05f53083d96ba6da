"""Figure for a paper: one heat map in a given size, as SVG, PDF or PNG; no title unless asked.

An SVG embeds a subset of the shipped font (DejaVu Sans) as WOFF, so that text looks the same where that font is not
installed. Glyphs keep their numbers; those that no character needs become empty, which compresses to almost nothing.
"""

import base64
import re
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from peasy.atomic import write_atomic
from peasy.display import CheckedMethods
from peasy.errors import UsageError
from peasy.parameters import Record
from peasy.render import palette, picture, sanitize
from peasy.render.number import format_number
from peasy.render.svg_layout import text_width, truncate_to_width

if TYPE_CHECKING:
    from peasy.inspection.results import LabelledMatrix

_FAMILY = "peasy DejaVu Sans"
"""Family of the embedded font: not a name that a system has, so that what is seen is what is embedded."""

_TABLES = (b"OS/2", b"cmap", b"cvt ", b"fpgm", b"glyf", b"head", b"hhea", b"hmtx", b"loca", b"maxp", b"prep")
_NO_NAMES = {b"name": struct.pack(">HHH", 0, 0, 6), b"post": struct.pack(">I28x", 0x00030000)}
"""Tables without names of the font and of its glyphs; browsers ask that the tables exist."""
_HAS_MORE, _WIDE_ARGUMENTS = 0x20, 0x01
_SCALES = {0x08: 2, 0x40: 4, 0x80: 8}
"""Bytes of the scale that a component of a composite glyph has, by flag."""

_POINTS_PER_CM = 72 / 2.54
_FONT = f"'{_FAMILY}', 'DejaVu Sans', Helvetica, Arial, 'Liberation Sans', sans-serif"
_SIZE, _GAP, _BAR, _MAX_LABEL = 7.0, 3.0, 6.0, 60.0
"""Font size, gap, width of the colour bar and longest label, in points."""


class Figure(CheckedMethods, Record, eq=False):
    """One heat map with labels, `width_cm` wide; the height follows from its cells, which are square.

    >>> from peasy.inspection.results import LabelledMatrix
    >>> import numpy as np
    >>> Figure(LabelledMatrix(np.eye(2), ("I", "AI"), ("I", "AI"), name="weights"), width_cm=4)
    Figure(weights: 4 cm wide; save it as .svg, .pdf or .png)
    """

    matrix: "LabelledMatrix"
    width_cm: float = 8.0
    colour_bar: bool = True
    title: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.width_cm <= 200:
            raise UsageError(f"width_cm is {self.width_cm}.", hint="Give a width between 1 and 200 cm.")

    def svg(self) -> str:
        """Return the figure as SVG, in centimetres, with the characters it needs of the shipped font embedded."""
        drawn = _Drawing(self).svg("cm")
        return drawn.replace("<title>", f"<style>{font_face(re.sub('<[^>]*>', '', drawn))}</style><title>", 1)

    def save(self, path: str | Path) -> Path:
        """Write .svg, .pdf or .png (288 dots per inch); PDF and PNG need the extra `plots`. Fonts are embedded."""
        suffix = Path(path).suffix.lower()
        if suffix == ".svg":
            return write_atomic(path, self.svg())
        if suffix not in (".pdf", ".png"):
            raise UsageError(f'"{path}" is not a figure file.', hint="Its name should end in .svg, .pdf or .png.")
        drawn = _Drawing(self).svg("").replace(_FONT, f"'{picture.FAMILY}'")
        if suffix == ".pdf":
            return write_atomic(path, picture.svg_to_pdf(drawn, self.title or self.matrix.name))
        return write_atomic(path, picture.svg_to_png(drawn, 4))

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"Figure({self.matrix.name}: {self.width_cm:g} cm wide; save it as .svg, .pdf or .png)"


class _Drawing:
    """Layout of a figure in points, and its SVG."""

    def __init__(self, figure: Figure) -> None:
        self.figure, matrix = figure, figure.matrix
        self.rows, self.columns = (
            [truncate_to_width(sanitize.token_label(label), _SIZE, _MAX_LABEL) for label in labels]
            for labels in (matrix.rows, matrix.columns)
        )
        self.width = figure.width_cm * _POINTS_PER_CM
        self.scale = palette.scale_for(matrix.values.tolist())
        ends = [format_number(value, 2) for value in (self.scale.high, self.scale.low)]
        bar = _GAP + _BAR + _GAP + max(text_width(text, _SIZE) for text in ends) + _GAP if figure.colour_bar else 0.0
        self.ends, axis = ends, _SIZE + _GAP
        self.left = axis + max((text_width(label, _SIZE) for label in self.rows), default=0) + _GAP
        self.cell = max((self.width - self.left - bar) / max(len(self.columns), 1), 0.5)
        self.rotated = any(text_width(label, _SIZE) > self.cell for label in self.columns)
        longest = max((text_width(label, _SIZE) for label in self.columns), default=0)
        self.top = (_SIZE * 1.6 if figure.title else 0) + axis + (longest if self.rotated else _SIZE) + _GAP
        self.height = self.top + self.cell * len(self.rows) + _GAP

    def svg(self, unit: str) -> str:
        points = _POINTS_PER_CM if unit == "cm" else 1.0
        size = f'width="{self.width / points:.3f}{unit}" height="{self.height / points:.3f}{unit}"'
        body = [*self._cells(), *self._labels(), *(self._bar() if self.figure.colour_bar else ())]
        if self.figure.title:
            body.append(_text(self.width / 2, _SIZE * 1.1, self.figure.title, "middle", size=_SIZE * 1.15))
        name = escape(self.figure.title or self.figure.matrix.name)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:.2f} {self.height:.2f}" '
            f'role="img" shape-rendering="crispEdges" font-family="{_FONT}" font-size="{_SIZE}"><title>{name}</title>'
            f"{_rect(0, 0, self.width, self.height, '#ffffff')}{''.join(body)}</svg>\n"
        )

    def _cells(self) -> list[str]:
        cells = []
        for y, row in enumerate(self.figure.matrix.values.tolist()):
            for x, value in enumerate(row):
                if (shade := self.scale.shade(value)) is not None:
                    left, top = self.left + self.cell * x, self.top + self.cell * y
                    cells.append(_rect(left, top, self.cell, self.cell, shade.background))
        return cells

    def _labels(self) -> list[str]:
        labels, matrix = [], self.figure.matrix
        for index, label in enumerate(self.rows):
            labels.append(_text(self.left - _GAP, self.top + self.cell * (index + 0.5) + _SIZE * 0.35, label, "end"))
        for index, label in enumerate(self.columns):
            x, y = self.left + self.cell * (index + 0.5), self.top - _GAP
            angled = (x + _SIZE * 0.35, y, label, "start", -90.0) if self.rotated else (x, y, label, "middle")
            labels.append(_text(*angled))
        middle = self.top + self.cell * len(self.rows) / 2, self.left + self.cell * len(self.columns) / 2
        labels.append(_text(_SIZE, middle[0], matrix.row_axis, "middle", -90.0))
        above = _SIZE * (2.6 if self.figure.title else 1.0)
        return [*labels, _text(middle[1], above, matrix.column_axis, "middle")]

    def _bar(self) -> list[str]:
        left, height = self.left + self.cell * len(self.columns) + _GAP, self.cell * len(self.rows)
        step, levels = height / palette.LEVELS, range(palette.LEVELS)
        shades = (palette.colour(self.scale.palette, 1 - level / palette.LEVELS) for level in levels)
        bars = [_rect(left, self.top + step * level, _BAR, step, shade) for level, shade in enumerate(shades)]
        places = ((self.top + _SIZE * 0.7, self.ends[0]), (self.top + height, self.ends[1]))
        return [*bars, *(_text(left + _BAR + _GAP, y, text, "start") for y, text in places)]


def _rect(left: float, top: float, width: float, height: float, fill: str) -> str:
    # a hair larger than the cell: viewers draw white lines between rectangles that only touch
    return f'<rect x="{left:.2f}" y="{top:.2f}" width="{width + 0.05:.2f}" height="{height + 0.05:.2f}" fill="{fill}"/>'


def _text(x: float, y: float, text: str, anchor: str, rotate: float = 0.0, size: float = _SIZE) -> str:
    turned = f' transform="rotate({rotate:g} {x:.2f} {y:.2f})"' if rotate else ""
    sized = f' font-size="{size:.2f}"' if size != _SIZE else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{turned}{sized} fill="#000000">{escape(text)}</text>'


def font_face(text: str) -> str:
    """Return the CSS rule that embeds the shipped font, with the characters of a text only.

    >>> font_face("pizza")[:50], len(font_face("pizza")) < 8_000
    ('@font-face{font-family:"peasy DejaVu Sans";src:url', True)
    """
    data = base64.b64encode(_woff_subset(frozenset(text))).decode("ascii")
    return f'@font-face{{font-family:"{_FAMILY}";src:url(data:font/woff;base64,{data})}}'


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
