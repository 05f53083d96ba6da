"""Layouts: the axes of the arrays of a call, as code declares them or most code has them."""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from peasy.verification.implementation.arguments import Sizes, source_of
from peasy.verification.implementation.names import role_of


@dataclass(frozen=True)
class Layout:
    """Shapes of a call's arrays: `axes` of queries (`key_axes` if keys differ), and width of all heads or of one.

    Arrays are kept with the channels last; `channels_first` code gets them after the batch, and code with
    `transposed_keys` gets keys of the shape [.., width, time].
    """

    axes: str
    width: int
    key_axes: str = ""
    channels_first: bool = False
    transposed_keys: bool = False

    @property
    def one_query(self) -> bool:
        """True if each sequence asks once."""
        return "t" not in self.axes and "t" in self.key_axes

    def shape(self, sizes: Sizes, role: str = "query") -> tuple[int, ...]:
        """Return the shape of an array with this role."""
        axes = self.key_axes if self.key_axes and role in ("key", "value", "source") else self.axes
        by_axis = {"y": 3, "x": 4, "s": sizes.side, "b": sizes.batch, "h": sizes.heads, "t": sizes.time, "1": 1}
        by_axis |= {"f": 2, "g": 2}  # frames of a film, query heads of a group
        return (*(by_axis[axis] for axis in axes), self.width)


def layouts(sizes: Sizes, flat: bool, widths: list[int], channels_first: bool = False) -> list[Layout]:
    """Return the layouts to try: `flat` code gets the width of all heads first."""
    narrow = [Layout(axes, sizes.d_head) for axes in ("bht", "bt", "t")] + [Layout("bht", sizes.d_head, "bt")]
    narrow += [Layout("bht", sizes.d_head, transposed_keys=True), Layout("bt", sizes.d_model, transposed_keys=True)]
    wide = [Layout(axes, width) for width in dict.fromkeys(widths) for axes in ("bt", "t", "byx", "bss")]
    maps = [Layout(axes, width, "", True) for width in dict.fromkeys(widths) for axes in ("byx", "bt", "bss")]
    last = [*wide, *narrow] if flat else [*narrow, *wide]
    return [*maps, *last] if channels_first else [*last, *maps] if flat else last


def declared_layouts(function: object, roles: Mapping[str, str], sizes: Sizes, widths: list[int]) -> list[Layout]:
    """Return the layouts that code declares itself, as in `b, t, h, d = q.shape` or `rearrange(x, "b c h w -> …")`."""
    try:
        tree = ast.parse(textwrap.dedent(source_of(function)))
    except SyntaxError:
        return []
    declared: dict[str, str] = {}
    for node in ast.walk(tree):
        for name, axes in _declared_axes(node):
            declared.setdefault(roles.get(name, ""), _axis_letters(axes))
    queries = declared.get("query") or declared.get("x") or ""
    keys = declared.get("key") or declared.get("value") or declared.get("source") or queries
    if queries.count("d") != 1 or keys.count("d") != 1 or len({*queries}) < len(queries):
        return []
    first = queries[1:2] == "d" and len(queries) > 2
    if not first and not queries.endswith("d"):
        return []
    plain = queries.replace("d", ""), keys.replace("d", "")
    several = [sizes.d_head] if "h" in queries else list(dict.fromkeys(widths))[:3]
    return [Layout(plain[0], width, plain[1] if plain[1] != plain[0] else "", first) for width in several]


def _declared_axes(node: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Yield the array and the names of its axes that a statement or an expression declares."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
        value, names = node.value, [ast.unparse(each) for each in node.targets[0].elts]
        if isinstance(value, ast.Tuple) and value.elts and isinstance(value.elts[0], ast.Starred):
            names, value = names[: len(names) - len(value.elts) + 1], value.elts[0].value
        shape = re.fullmatch(r"(\w+)\.(?:shape|size\(\))", ast.unparse(value))
        if shape:
            yield shape[1], names
    if isinstance(node, ast.Compare) and isinstance(node.comparators[0], ast.Tuple):  # assert k.shape == (b, t, d)
        shape = re.fullmatch(r"(\w+)\.shape", ast.unparse(node.left))
        if shape:
            yield shape[1], [ast.unparse(each) for each in node.comparators[0].elts]
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("einsum") and len(node.args) == 3:
        written = re.fullmatch(r"['\"](\w+), *(\w+) *-> *(\w+)['\"]", ast.unparse(node.args[0]))
        axes = _einsum_axes([written[1], written[2]], written[3]) if written else ()
        yield from (
            (array.id, each) for array, each in zip(node.args[1:], axes, strict=False) if isinstance(array, ast.Name)
        )
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("rearrange") and len(node.args) > 1:
        array, pattern = node.args[:2]
        text = str(pattern.value).partition("->")[0] if isinstance(pattern, ast.Constant) else "..."
        if isinstance(array, ast.Name) and not {*"(."} & {*text}:
            yield array.id, text.split()


def _einsum_axes(operands: list[str], result: str) -> Iterator[list[str]]:
    """Yield the names of the axes of both factors of a product: summed, of one factor only, or of both."""
    for letters, other in (operands, operands[::-1]):
        shared = [letter for letter in letters if letter in other and letter in result]
        names = {letter: "d" if letter in other else "length" for letter in letters}
        yield [{**names, **dict(zip(shared, ("batch", "heads"), strict=False))}[letter] for letter in letters]


def _axis_letters(names: list[str]) -> str:
    """Return the letters of a `Layout` for names of axes; of a name that is not known, its place decides."""
    plain = [name.lower().strip("_").removeprefix("self.") for name in names]
    letters = {"batch": "b", "heads": "h", "key_heads": "h", "repeats": "g"}
    letters |= {"d_model": "d", "d_head": "d", "length": "t"}
    picture = {"h": "y", "w": "x", "height": "y", "width": "x", "t": "f", "x": "x", "y": "y"}
    pictured = {"h", "w"} <= {*plain} or {"height", "width"} <= {*plain} or {"x", "y"} <= {*plain}
    found = ""
    for position, name in enumerate(plain):
        words = set(name.split("_"))
        letter = picture.get(name, "") if pictured else ""
        letter = letter or letters.get(role_of(name, True), "")
        if words & {"n", "l", "s", "len", "length", "tokens", "queries", "keys", "seq", "nodes"} and letter != "h":
            letter = "b" if position == 0 and name == "n" and len(plain) > 2 else "t"
        letter = letter or ("g" if words & {"mult", "group", "groups"} else "")
        end = "d" if position == len(plain) - 1 and "d" not in found else "b" if position == 0 else "t"
        found += letter or end
    return found


ONE_QUERY = (("b", "bt"), ("b", "tb"), ("1b", "tb"), ("b1", "bt"), ("1b", "bt"))
"""Axes of queries and keys where each sequence asks once: a decoder's state and the encoder's outputs."""
