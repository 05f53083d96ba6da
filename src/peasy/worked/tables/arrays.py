"""Arrays in text: NumPy and torch prints, nested lists, with the name of the variable or the line above as caption.

`tensor([[0.43, 0.15], [0.55, 0.87]])`, `[[0.43 0.15]\\n [0.55 0.87]]`, `attn_weights = np.array([[...]])`.
"""

import re
from collections.abc import Iterator

from peasy.parameters import Record
from peasy.worked.checking.step_aliases import parse_caption

_MAX_TEXT = 400_000
_OPENING = re.compile(r"\[")
_COMMENT = re.compile(r"#[^\n]*|(?<=[\],])[ \t]+(?:[(←—]|<-|//|--)[^\n\[\]]*")
_CALL = re.compile(r"(?:(?:np|numpy|torch|jnp|tf)\.)?(?:tensor|array|asarray|Tensor|constant|Parameter|matrix)\(\s*$")
_PRINTED = re.compile(r"print\((.*)\)\s*;?\s*$")
_STRING = re.compile(r"""[fr]?(["'])(.*?)\1""")
_SIGNS_OF_ARRAY = re.compile(r"[\s\[\],;\d.eE+\-−/infa]*")
_ARGUMENTS = re.compile(r",(?![^(\[]*[)\]])")
_SHAPE = re.compile(r"\.shape|\.size\(|\.dtype|\blen\(|\bsep=|\bend=|^[fr]?$")
_EQUAL_NAMES = re.compile(r"^\s*((?:\w+\s*=\s*){2,3})(?:[\w.]+\()?$")
_NUMBER = r"[-+−]?(?:\d+\s*/\s*\d+|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan|\.\.\.)"
_ITEM = re.compile(_NUMBER)
_ROW = re.compile(rf"\[\s*(?:{_NUMBER}\s*[,;]?\s*)+\]")
_NO_TABLE = re.compile(r"(?:Size|shape|size)\W*\Z|[\w)\]]\Z|[@×·⋅*/+][ \t]*\Z")
"""What stands before a shape, an index such as x[1] or an operand."""
_FACTOR = re.compile(r"[ \t]*[@×·⋅*/][ \t]*[\[\w(√]")
"""What stands after an operand."""
_CAPTION_LINES = 6
"""Number of lines above an array that are searched for its name."""


class PrintedArray(Record):
    """Array found in a text: candidate captions, nearest first, and its rows; `is_vector` if it has one axis.

    `is_output` if it stands at the start of a line, as a program prints it; `start` is its place in the text.
    """

    captions: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_vector: bool
    head: int | None = None
    is_output: bool = False
    start: int = 0


def find_arrays(text: str, before: list[str] | None = None) -> Iterator[PrintedArray]:
    """Yield the arrays of a text in order; `before` are lines above it that may name the first one.

    >>> [(array.captions[0], array.rows) for array in find_arrays("attn_weights = tensor([[0.5, 0.5], [0.1, 0.9]])")]
    [('attn_weights', (('0.5', '0.5'), ('0.1', '0.9')))]
    """
    if len(text) > _MAX_TEXT:
        return
    position, above = 0, list(before or [])
    while match := _OPENING.search(text, position):
        end = _closing(text, match.start())
        if end is None:
            return
        inside = text[match.start() : end]
        lead = text[position : match.start()]
        is_other = bool(_NO_TABLE.search(lead)) or bool(_FACTOR.match(text, end))
        plain = _COMMENT.sub("", inside)
        grids = _grids(plain) if _SIGNS_OF_ARRAY.fullmatch(plain) and not is_other else None
        if grids is None:
            above += lead.splitlines() + inside.splitlines()
            position = match.start() + 1 if "[" in inside[1:] and not is_other else end
            continue
        lines = [*above, *lead.splitlines()]
        captions = tuple(_captions(lines, ends_in_line=bool(lead) and not lead.endswith("\n")))
        equal = _EQUAL_NAMES.search(lead.rpartition("\n")[2])
        for name in re.split(r"\s*=\s*", equal[1].strip(" =")) if equal else ():  # Q = K = V = [[...]]
            yield PrintedArray((name,), *grids[0], start=match.start())
        is_output = not _CALL.sub("", lead.rpartition("\n")[2]).strip()
        for head, grid in enumerate(() if equal else grids, start=1):
            yield PrintedArray(captions, *grid, head if len(grids) > 1 else None, is_output, match.start())
        above, position = [], end


def name_printed(printed: str, source: str) -> str:
    """Return the output of a program with the expression that was printed above each array.

    If the numbers of printed expressions and of arrays differ, the output is kept apart from the program text.
    """
    starts = sorted({array.start for array in find_arrays(printed)})
    calls = [_PRINTED.search(line) for line in source.splitlines() if not line.lstrip().startswith("#")]
    arguments = [
        part.strip() for call in calls if call for part in _ARGUMENTS.split(_STRING.sub("", call[1]))
        if part.strip() and not _SHAPE.search(part)
    ]  # fmt: skip
    if len(arguments) != len(starts):  # some of them are no arrays
        arguments = [argument for argument in arguments if parse_caption(argument)]
    if len(arguments) != len(starts):
        return "\n" * _CAPTION_LINES + printed if len(starts) > 1 else printed
    for start, argument in reversed(list(zip(starts, arguments, strict=True))):
        line = printed.rfind("\n", 0, start) + 1
        if any(map(parse_caption, _captions(printed[:start].splitlines()[-2:], False))):
            continue  # its label says more
        printed = f"{printed[:line]}{argument}:\n{printed[line:]}"
    return printed


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for index in range(start, min(len(text), start + 100_000)):
        depth += {"[": 1, "]": -1}.get(text[index], 0)
        if depth == 0:
            return index + 1
    return None


def _grids(inside: str) -> list[tuple[tuple[tuple[str, ...], ...], bool]] | None:
    """Return the matrices of nested brackets: one for a vector or matrix, one per head for three axes."""
    depth = len(inside) - len(inside.lstrip("[ \n"))
    depth = inside[: depth + 1].count("[")
    rows = [tuple(_ITEM.findall(row)) for row in _ROW.findall(inside)]
    if not rows or not rows[0]:
        return None
    if depth <= 1:
        return [((rows[0],), True)]
    if depth == 2 or inside.count("[") == len(rows) + depth - 1:
        return [(tuple(rows), False)]
    blocks = re.split(r"\]\s*\]\s*,?\s*(?=\[)", inside)
    grids = [tuple(tuple(_ITEM.findall(row)) for row in _ROW.findall(f"{block}]")) for block in blocks]
    return [(grid, False) for grid in dict.fromkeys(grids)]  # a batch of equal sequences is one table


def _captions(lines: list[str], ends_in_line: bool) -> Iterator[str]:
    """Yield the names that lines before an array give: `name = tensor(`, `name:`, `print(name)`, `name`."""
    near = [line for line in lines[-_CAPTION_LINES:] if line.strip()]
    for index, line in enumerate(reversed(near)):
        own = ends_in_line and index == 0
        text = _COMMENT.sub("", line).rstrip() if not line.lstrip().startswith("#") else line.strip("# ")
        text = _CALL.sub("", text).strip()
        if printed := _PRINTED.search(text):
            yield from (string for _, string in _STRING.findall(printed[1]))
            arguments = map(str.strip, _ARGUMENTS.split(_STRING.sub("", printed[1])))
            yield from reversed(list(filter(None, arguments)))
            continue
        left, equals, right = text.partition("=")
        if "/" in right and re.search(r"K\s*[.^]*\s*[Tᵀ⊤]", right):  # S = QK^T / √d_k says more than S
            yield text.rstrip(":").strip()
        if equals and not left.rstrip().endswith(("(", "!", "<", ">")):
            yield left.strip().rstrip(":")
        elif text:
            yield text.rstrip(":").strip()
        if own and text:
            return
