"""SVG primitives and layout: text measurement, sized fragments, frames, arrows, style sheets."""

import re
import unicodedata
from collections.abc import Sequence
from xml.sax.saxutils import escape

from peasy.parameters import Record

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"
"""Font families of all figures."""

BOLD_WIDTH_FACTOR = 1.15
"""Width of bold text relative to normal text."""

_SUBSCRIPT = re.compile(r"(?<=\w)_(\w+)")

_LIGHT = {
    "paper": "#ffffff", "panel": "#f6f7f9", "edge": "#d5d9e0", "ink": "#1b2230", "soft": "#566072", "bare": "#ffffff",
    "mark": "#d55e00", "link": "#0b5cad", "reused": "#c9ced6", "computed": "#0072b2", "dot": "#ffffff",
}  # fmt: skip
_DARK = {
    "paper": "#11151c", "panel": "#1a202a", "edge": "#374151", "ink": "#e8ecf2", "soft": "#a4afc0", "bare": "#222a36",
    "mark": "#ff9d4d", "link": "#7cb8ff", "reused": "#454f5e", "computed": "#56b4e9", "dot": "#000000",
}  # fmt: skip


class SvgFragment(Record):
    """SVG fragment with its top left corner at (0, 0), sizes in pixels; `ends_line` starts a new line after it."""

    width: float
    height: float
    body: str
    ends_line: bool = False

    def at(self, left: float, top: float) -> str:
        """Return the fragment translated to a position."""
        return f'<g transform="translate({left:.1f} {top:.1f})">{self.body}</g>'


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text, without font metrics and on the generous side."""
    return sum(_character_width(character) for character in text) * size


def _character_width(character: str) -> float:
    if unicodedata.combining(character) or character in "\u200d\u200c\ufe0f":
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 1.05
    if character in "ilj.,:;|!'·()[] ":
        return 0.33
    return 0.72 if character.isupper() or character in "mwMW%…⋯→∞" else 0.58


def truncate_to_width(text: str, size: float, max_width: float) -> str:
    """Return the text, cut with an ellipsis if it is wider than `max_width`."""
    if text_width(text, size) <= max_width:
        return text
    while text and text_width(text + "…", size) > max_width:
        text = text[:-1]
    return text + "…"


def text_at(x: float, y: float, text: str, kind: str, anchor: str = "start", rotate: float = 0, fill: str = "") -> str:
    """Return a text element; `kind` is a class of the style sheet."""
    turned = f' transform="rotate({rotate:g} {x:.1f} {y:.1f})"' if rotate else ""
    anchored = f' text-anchor="{anchor}"' if anchor != "start" else ""
    filled = f' fill="{fill}"' if fill else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}"{anchored}{turned}{filled}>{escape(text)}</text>'


def formula_at(x: float, y: float, text: str, kind: str = "formula") -> str:
    """Return a formula as a text element; underscores become subscripts."""
    index = '<tspan class="index" dy="3">{}</tspan><tspan dy="-3">\u200b</tspan>'
    pieces = enumerate(map(escape, _SUBSCRIPT.split(text)))
    body = "".join(index.format(piece) if at % 2 else piece for at, piece in pieces)
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{body}</text>'


def rect_at(x: float, y: float, width: float, height: float, kind: str, radius: int | None = None) -> str:
    """Return a rectangle; `kind` is a class of the style sheet."""
    rounded = "" if radius is None else f' rx="{radius}"'
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{rounded} class="{kind}"/>'


def text_fragment(lines: list[str]) -> SvgFragment:
    """Return lines of text, wrapped to 900 pixels."""
    wrapped = [piece for line in lines for piece in _wrap(line, 900)]
    width = max((text_width(line, 13) for line in wrapped), default=0)
    body = "".join(text_at(0, 14 + 19 * index, line, "label") for index, line in enumerate(wrapped))
    return SvgFragment(width, 19 * len(wrapped), body)


def stack(fragments: Sequence[SvgFragment], gap: float) -> SvgFragment:
    """Return fragments below each other; the height includes the gap after the last one."""
    body, top = "", 0.0
    for piece in fragments:
        body += piece.at(0, top)
        top += piece.height + gap
    return SvgFragment(max((piece.width for piece in fragments), default=0), top, body, ends_line=True)


def _wrap(line: str, max_width: float) -> list[str]:
    lines = [""]
    for word in line.split(" "):
        extended = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_width(extended, 13) > max_width:
            lines.append(word)
        else:
            lines[-1] = extended
    return [truncate_to_width(text, 13, max_width) for text in lines]


def standalone_svg(drawing: SvgFragment, title: str, description: str, dark: bool) -> str:
    """Return a standalone SVG document."""
    dark_style = f"@media (prefers-color-scheme:dark){{{_theme(_DARK)}}}" if dark else ""
    paper = f'<rect width="{drawing.width:.0f}" height="{drawing.height:.0f}" rx="12" class="paper"/>'
    return _svg_element(drawing, title, description, f"<style>{_BASE_STYLE}{_theme(_LIGHT)}{dark_style}</style>{paper}")


def inline_svg(drawing: SvgFragment, title: str, description: str, styled: bool) -> str:
    """Return inline SVG; `styled` if the page has no style sheet for it."""
    return _svg_element(drawing, title, description, f"<style>{_BASE_STYLE}{_theme(_LIGHT)}</style>" if styled else "")


def page_style() -> str:
    """Return the style sheet for inline SVG on a page that defines the colour variables."""
    return _BASE_STYLE + _theme({name: f"var(--{name})" for name in _LIGHT})


def _svg_element(drawing: SvgFragment, title: str, description: str, head: str) -> str:
    width, height = f"{drawing.width:.0f}", f"{drawing.height:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="peasy" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img"><title>{escape(title)}</title><desc>{escape(description)}</desc>'
        f"{head}{drawing.body}</svg>\n"
    )


def _scope_css(rules: str) -> str:
    """Scope CSS rules to `.peasy`: a style element inside an SVG applies to the whole page."""
    scoped = []
    for rule in rules.removesuffix("}").split("}"):
        names, _, declared = rule.partition("{")
        scoped.append(f"{','.join(f'.peasy {name}' for name in names.split(','))}{{{declared}}}")
    return "".join(scoped)


_BASE_STYLE = _scope_css(
    f"text{{font-family:{SANS};font-size:13px;unicode-bidi:isolate;white-space:pre}}"
    ".title{font-size:20px;font-weight:700}.heading{font-size:15px;font-weight:600}"
    ".name{font-weight:700}.formula{font-style:italic;font-size:12px}.axis{font-size:11px}"
    ".number{font-variant-numeric:tabular-nums}.small{font-size:11px}.tiny{font-size:10px}.index{font-size:9px}"
    ".arrow,.line{fill:none;stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}.marked{fill:none;stroke-width:3}"
    ".edge{fill:none;stroke-width:1}.link,.known{fill:none}.known{stroke-width:1.5;stroke-dasharray:5 3}"
)


def _theme(colours: dict[str, str]) -> str:
    return _scope_css(
        f".paper{{fill:{colours['paper']}}}.panel{{fill:{colours['panel']};stroke:{colours['edge']}}}"
        f".title,.heading,.name,.label,.bare-ink{{fill:{colours['ink']}}}"
        f".formula,.axis,.small,.tiny{{fill:{colours['soft']}}}.arrow,.grid-ink{{stroke:{colours['soft']}}}"
        f".rule{{stroke:{colours['edge']}}}.bare{{fill:{colours['bare']};stroke:{colours['edge']}}}"
        f".marked,.known{{stroke:{colours['mark']}}}.edge{{stroke:{colours['edge']}}}.link{{stroke:{colours['link']}}}"
        f".reused{{fill:{colours['reused']}}}.computed{{fill:{colours['computed']}}}.dot{{fill:{colours['dot']}}}"
    )
