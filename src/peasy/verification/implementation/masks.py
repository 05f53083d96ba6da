"""Masks: the pattern that a call has by itself, and what a mask argument does."""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from peasy.verification.implementation.arguments import signature_of, source_of
from peasy.verification.implementation.call_text import call_method
from peasy.verification.implementation.core import COPIES, Array, find_cores, grows
from peasy.verification.implementation.judgement import Judgement, line_that_sets, place_of
from peasy.verification.implementation.loading import definitions
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.reading import HIDDEN, Reading
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import Op, Place, to_float

_FILLS = ("masked_fill", "where", "add", "mul", "sub", "baddbmm", "copy", "tril", "triu", "index_put", "assemble")


def _mask_op(reading: Reading) -> Op | None:
    """Return the operation between product and softmax that applies a mask."""
    path = {op.index for op in reading.core.path}
    last = reading.masked_op.index if reading.masked_op is not None else reading.core.path[-1].index
    found = [
        op for op in reading.core.path[1:]
        if op.index <= last and op.name.rstrip("_") in _FILLS
        and (op.name.rstrip("_") in ("tril", "triu") or any(source not in path for source, _ in op.inputs))
    ]  # fmt: skip
    return found[-1] if found else None


def mask_place(reading: Reading) -> Place | None:
    """Return the line that applies the mask."""
    return place_of(_mask_op(reading))


def _mask_ops(reading: Reading) -> list[Op]:
    """Return the operations of the call that make its mask, in order."""
    op, path = _mask_op(reading), {each.index for each in reading.core.path}
    sources = [source for source, _ in op.inputs if source not in path] if op is not None else []
    made = {each.index: each for source in sources for each in reading.trace.ancestors(source) if each.place}
    return [made[index] for index in sorted(made)]


def repeating_place(reading: Reading) -> Place | None:
    """Return the line that repeats a mask for the heads; the one that applies it, if none does."""
    grown = [each for each in _mask_ops(reading) if each.name in COPIES and grows(each)]
    return grown[-1].place if grown else mask_place(reading)


def slicing_place(reading: Reading) -> Place | None:
    """Return the line that cuts a mask out of a larger one."""
    return next((each.place for each in reversed(_mask_ops(reading)) if each.name == "slice"), None)


def builder_place(subject: RepeatedCall, reading: Reading) -> Place | None:
    """Return the line that builds a triangular mask, in the call or in the constructor."""
    op = _mask_op(reading)
    if op is None:
        return None
    path = {each.index for each in reading.core.path}
    candidates: list[Op] = [op] if op.name.rstrip("_") in ("tril", "triu") else []
    for source, _ in op.inputs:
        if source in path:
            continue
        for each in sorted(reading.trace.ancestors(source), key=lambda one: -one.index):
            if each.name == "buffer":
                candidates += reversed(subject.buffer_ops.get(id(subject.buffers.get(each.root)), []))
            candidates.append(each)
    for names in (("tril", "triu", "tril_", "triu_"), ("ge", "gt", "le", "lt")):
        for each in candidates:
            if each.name in names and each.place is not None:
                return each.place
    return _line_that_makes(op, r".*\b(tri[lu]?|arange)\b") or op.place


def _line_that_makes(op: Op, value: str) -> Place | None:
    """Return the line that gives a mask its value, in the function that applies it or in its callers."""
    made = (line_that_sets(place, r"\b(\w*mask\w*|future|hidden)\b", value) for place in (op.place, *op.callers))
    return next(filter(None, made), None)


def judge_pattern(subject: RepeatedCall, reading: Reading, named_causal: bool, found: Judgement) -> str:
    """Judge the mask that a call without a mask argument has by itself; return its kind."""
    if "weights transposed" in found.mistakes:
        return ""  # so is the mask
    kind = _pattern_kind(reading)
    replaced = reading.replaced is not None and bool(reading.replaced.any())
    if replaced and not found.mistakes:
        judge_weak_mask(reading, found)
        return "weak"
    if kind.startswith("off by one"):
        found.mistake(f"causal mask {kind}", builder_place(subject, reading))
    elif kind == "inverted":
        mask = _time_mask(reading)  # ahead only: its use is inverted, not the triangle
        is_ahead = mask is not None and not mask.diagonal().any()
        found.mistake("mask inverted", mask_place(reading) if is_ahead else builder_place(subject, reading))
    elif kind == "" and not found.mistakes:
        found.not_understood("Its mask is neither causal nor a window.")
    elif kind == "full" and named_causal:
        found.mistake("named causal but not causal", None)
    elif kind != "":
        found.convention({"full": "bidirectional", "causal": "always causal"}.get(kind, kind))
    return kind


def judge_weak_mask(reading: Reading, found: Judgement) -> None:
    """Name a mask that replaces scores by 0 or another small number."""
    assert reading.replaced is not None
    assert reading.bias is not None
    name = "mask value too small" if reading.bias[reading.replaced].any() else "masked scores become 0"
    found.mistake(name, weak_place(reading))


def is_weak(reading: Reading, trial: "MaskTrial") -> bool:
    """Return whether a mask only adds one small number to the scores of the masked keys, or of the others."""
    if reading.bias is None:
        return False
    hidden, seen = reading.bias[~trial.alone], reading.bias[trial.alone]
    return bool(np.ptp(hidden) == np.ptp(seen) == 0 and 0 < abs(hidden[0] - seen[0]) < -HIDDEN)


def weak_place(reading: Reading) -> Place | None:
    """Return the line that multiplies a mask by its number, or that applies it."""
    op = _mask_op(reading)
    return None if op is None else _line_that_makes(op, r".*\*\s*-\s*\d") or op.place


def _pattern_kind(reading: Reading) -> str:
    mask = _time_mask(reading)
    if mask is None:
        return "" if reading.allowed is not None and not reading.allowed.all() else "full"
    if mask.all():
        return "full"
    queries, keys = mask.shape
    ones = np.ones((queries, keys), bool)
    for name, pattern in {
        "causal": np.tril(ones, keys - queries), "off by one (future)": np.tril(ones, keys - queries + 1),
        "off by one (self)": np.tril(ones, keys - queries - 1), "inverted": np.triu(ones, keys - queries),
        "top-left": np.tril(ones),
    }.items():  # fmt: skip
        if np.array_equal(mask, pattern):
            return name
    if any(np.array_equal(mask, np.triu(ones, keys - queries + ahead)) for ahead in (1, 2)):
        return "inverted"
    return _window_kind(mask)


def _window_kind(mask: Array) -> str:
    distance = np.arange(mask.shape[0])[:, None] + mask.shape[1] - mask.shape[0] - np.arange(mask.shape[1])[None]
    for width in range(1, mask.shape[1]):
        if np.array_equal(mask, (distance >= 0) & (distance < width)):
            return f"always causal, window of {width}"
        if np.array_equal(mask, np.abs(distance) <= width):
            return f"window of {width} on both sides"
    if np.array_equal(mask, distance != 0):
        return "no token attends to itself"
    blocks = np.array_equal(mask, mask.T) and bool(mask.diagonal().all())
    return "blocks of tokens" if blocks and np.array_equal(mask, (mask.astype(int) @ mask) > 0) else ""


_KINDS = {
    "attend": "True = may attend",
    "masked": "True = masked",
    "ones": "1 = may attend, 0 = masked",
    "zeros": "1 = masked, 0 = may attend",
    "additive": "added to the scores: 0 = may attend, -∞ = masked",
}
_SHAPES = {
    "b1qk": "batch, 1, query, key", "qk": "query, key", "bqk": "batch, query, key", "bk": "batch, key",
    "b11k": "batch, 1, 1, key", "b1k": "batch, 1, key", "11qk": "1, 1, query, key", "1qk": "1, query, key", "k": "key",
    "qkb": "query, key, batch", "qk1": "query, key, 1", "bt": "batch, token; masked tokens neither ask nor are asked",
    "bt1": "batch, token, 1; masked tokens neither ask nor are asked",
}  # fmt: skip


@dataclass(frozen=True)
class MaskConvention:
    """Mask convention: meaning of the values, and shape."""

    kind: str
    shape: str

    @property
    def summary(self) -> str:
        """The convention as text."""
        return f"{_KINDS[self.kind]}; {_SHAPES[self.shape]}"

    @property
    def true_attends(self) -> bool | None:
        """Whether True or 1 means "may attend"; None for added masks."""
        return None if self.kind == "additive" else self.kind in ("attend", "ones")

    def restrict(self, mask: Array) -> Array:
        """Restrict a mask `[batch, query, key]` to what this shape can represent."""
        if "b" not in self.shape:
            mask = np.broadcast_to(mask[:1], mask.shape)
        if "q" not in self.shape:
            mask = np.broadcast_to(mask[:, :1], mask.shape)
        return mask & mask[:, :1, : mask.shape[1]].swapaxes(1, 2) if "t" in self.shape else mask

    def encode(self, mask: Array) -> Array:
        """Encode a mask in this convention."""
        if "t" not in self.shape:
            mask = self.restrict(mask)
        by_shape: dict[str, Array] = {
            "b1qk": mask[:, None], "qk": mask[0], "bqk": mask, "bk": mask[:, 0], "b11k": mask[:, None, :1],
            "b1k": mask[:, :1], "11qk": mask[None, :1], "1qk": mask[:1], "k": mask[0, 0],
            "qkb": mask.transpose(1, 2, 0), "qk1": mask[0, :, :, None], "bt": mask[:, 0],
            "bt1": mask[:, 0, :, None],
        }  # fmt: skip
        shaped = by_shape[self.shape]
        if self.kind == "additive":
            return np.where(shaped, np.float32(0), np.float32(-1e3))  # so that a small factor is seen
        if self.kind in ("ones", "zeros"):
            return (shaped if self.kind == "ones" else ~shaped).astype(np.float32)
        return np.ascontiguousarray(shaped if self.kind == "attend" else ~shaped)


def conventions(name: str, role: str) -> Iterator[MaskConvention]:
    """Yield the mask conventions to try, most common first; what is called a bias is added."""
    shapes = ("b1qk", "qk", "bqk", "bk", "b11k", "b1k", "11qk", "1qk", "k", "qkb", "qk1", "bt", "bt1")
    for kind in ("additive",) if "bias" in name else _KINDS:
        for shape in ("bk", "b11k", "b1k", "bt") if role == "padding" else shapes:
            yield MaskConvention(kind, shape)


def random_mask(batch: int, queries: int, keys: int, seed: int) -> Array:
    """Return a random mask `[batch, query, key]`, True = may attend; no row is all True or all False."""
    mask = np.random.default_rng([seed, 3]).random((batch, queries, keys)) < 0.6
    rows = np.arange(queries)
    mask[..., rows, (rows + min(2, keys - 1)) % keys] = False
    mask[..., rows, rows % keys] = True
    return mask


@dataclass(eq=False)
class MaskTrial:
    """A mask convention that the code accepted: what it should allow, and the weights that came out."""

    convention: MaskConvention
    constants: dict[str, object]
    allowed: Array
    alone: Array
    weights: Array
    mask: Array
    batch: Array
    changed: bool

    @property
    def obeyed(self) -> bool:
        """True if exactly the masked keys have no weight, in rows that are not masked altogether."""
        return self._is_pattern(self.allowed) or self.replaces

    @property
    def replaces(self) -> bool:
        """True if a mask of queries and keys takes the place of the mask that the call has by itself."""
        return "q" in self.convention.shape and not self._is_pattern(self.allowed) and self._is_pattern(self.alone)

    def _is_pattern(self, allowed: Array) -> bool:
        rows = allowed.any(axis=-1)
        return np.array_equal((self.weights > 1e-7)[rows], allowed[rows])

    @property
    def other_sequence(self) -> bool:
        """True if the mask of each sequence is applied to the same number of heads of some sequence, not of its own."""
        if not self.changed or "b" not in self.convention.shape or self.obeyed:
            return False
        own = {number: self.allowed[np.flatnonzero(self.batch == number)[0]] for number in np.unique(self.batch)}
        seen = [[n for n, each in own.items() if np.array_equal(row > 1e-7, each)] for row in self.weights]
        return all(len(each) == 1 for each in seen) and sorted(each[0] for each in seen) == sorted(self.batch)


def mask_trials(subject: RepeatedCall, reading: Reading, name: str, role: str, seed: int) -> Iterator[MaskTrial]:
    """Yield every convention of a mask argument that the code accepts, with the weights."""
    query, key = reading.query, reading.key
    if len(query.shape) < 1 or reading.attended == ():
        return
    attended = [axis % len(query.shape) for axis in reading.attended]
    batch_axis = next((axis for axis in range(len(query.shape)) if axis not in attended), None)
    batch = 1 if batch_axis is None else query.shape[batch_axis]
    queries, keys = (int(np.prod([rows.shape[axis] for axis in reading.attended])) for rows in (query, key))
    mask = random_mask(batch, queries, keys, seed)
    at = np.zeros_like(query.tokens) if batch_axis is None else np.maximum(query.positions[batch_axis], 0)
    known = (reading.query_times >= 0)[:, :, None] & (reading.key_times >= 0)[:, None, :]
    open_before = np.nan_to_num(reading.core.weights, nan=1.0) > 1e-7
    for convention in conventions(name, role):
        allowed = convention.restrict(mask)[
            at[:, :, None], reading.query_times[:, :, None], reading.key_times[:, None, :]
        ]
        alone = np.where(known, allowed, True)
        value = subject.as_argument(convention.encode(mask))
        before = dict(subject.constants)
        subject.constants[name] = value
        try:
            cores = find_cores(subject.trace())
        except Exception:
            continue
        finally:
            subject.constants.clear()
            subject.constants.update(before)
        if cores and cores[0].shape == reading.core.shape:
            weights = np.nan_to_num(cores[0].weights, nan=1.0)
            changed = not np.allclose(weights, reading.core.weights, atol=1e-6)
            yield MaskTrial(convention, {name: value}, alone & open_before, alone, weights, mask, at[:, 0], changed)


def declared_mask_meaning(target: object, file: str, name: str, namespace: Mapping[str, object]) -> bool | None:
    """Return whether True or 1 in a mask means "may attend": from docstrings, names, and masks that the file builds.

    If the parameter has an entry of its own in a docstring, only that is read: other lines may be about another mask.
    """
    method = call_method(target) if inspect.isclass(target) else getattr(target, "forward", None)
    described = filter(None, (target, method))
    text = "\n".join(filter(None, map(inspect.getdoc, described))).lower()
    entry = (
        rf"^([ \t]*)(?::param )?[`*]*{re.escape(name.lower())}[`*]*\s*(?:\([^\n]*\))?\s*:[^\n]*(?:\n\1[ \t]+[^\n]*)*"
    )
    entries = [match[0] for match in re.finditer(entry, text, re.MULTILINE)]
    lines = [line for line in text.splitlines() if "mask" in line or name.lower() in line]
    docstring = "\n".join(entries or lines)
    hidden = r"hide|hidden|mask(?:ed|ing)? out|masking|masked|ignore|block|not (?:attend|look|see|allowed)|forbid|pad"
    seen = r"not \W*masked|may|can|allow|attend|visible|keep|look|see|real|valid|participat"
    after = rf"(?:true|\b1|ones?)\b[^.,;\n]{{0,40}}?(?:({hidden})|(?:{seen}))"
    before = rf"(?:({hidden})|(?:{seen}))\w*\W{{0,2}}\((?:(true|1|ones?)|false|0|zeros?)\b"
    said = {each[1] is None for each in re.finditer(after, docstring)}
    said |= {(each[1] is None) == (each[2] is not None) for each in re.finditer(before, docstring)}
    paragraphs = "\n".join(entries or [each for each in text.split("\n\n") if name.lower() in each])
    asked = re.search(rf"whether[^.;]{{0,120}}?(?:({hidden})|access|(?:{seen}))", paragraphs)
    said = said or ({asked[1] is None} if asked else set())
    if said:
        return said.pop() if len(said) == 1 else None
    if name.lower() in ("hide", "hidden_mask"):
        return False
    named = name.lower() in ("visible", "allowed", "may_look", "keep", "valid")
    return True if named else _built_mask_meaning(target, file, namespace)


def _built_mask_meaning(target: object, file: str, namespace: Mapping[str, object]) -> bool | None:
    """Return the meaning of causal masks that functions of the file build for others: tril = may attend."""
    own, meanings = source_of(target), set()
    for node, source in definitions(Path(file)) if own else ():
        builds = isinstance(node, ast.FunctionDef) and "mask" in node.name.lower() and len(source) < 1500
        if builds and node.name not in own:
            made = _causal_mask_of(namespace.get(node.name))
            if made is not None:
                meanings.add(made)
                continue
            for line in re.findall(r"[^\n]*\btri[lu]\s*\([^\n]*(?:\n[^\n]*)?", source):
                inverted = bool(re.search(r"==\s*(0|False)|eq\(0|~|<\s*1|1(\.0)?\s*-|_not|invert|-inf|-1e", source))
                meanings.add(("tril" in line) != inverted)
    return meanings.pop() if len(meanings) == 1 else None


def _causal_mask_of(function: object) -> bool | None:
    """Return whether a function of a number of tokens makes a causal mask in which 1 means "may attend".

    Only a function whose one required parameter is a size by its name, and that compares or cuts triangles, is called.
    """
    if not inspect.isfunction(function):
        return None
    names = [parameter.name for parameter in signature_of(function) if parameter.default is parameter.empty]
    sizes = [name for name in names if role_of(name, True) == "length" or name in ("size", "sz", "n", "length")]
    if len(names) != 1 or not sizes or not re.search(r"\btri[lu]\b|\barange\b", source_of(function)):
        return None
    ones = np.ones((5, 5))
    with contextlib.suppress(Exception):
        mask = to_float(function(5)).reshape(5, 5)
        return {np.tril(ones).tobytes(): True, np.triu(ones, 1).tobytes(): False}[mask.tobytes()]
    return None


def _time_mask(reading: Reading) -> Array | None:
    """Return which times attend to which, `[query time, key time]`, if it is the same in every head and sequence."""
    if reading.allowed is None or not reading.attended:
        return None
    pattern = reading.allowed & (np.nan_to_num(reading.core.weights, nan=1.0) != 0)
    at_q, at_k = np.broadcast_arrays(reading.query_times[:, :, None], reading.key_times[:, None, :])
    known = (at_q >= 0) & (at_k >= 0)
    seen = np.zeros((2, int(at_q.max()) + 1, int(at_k.max()) + 1), bool)
    seen[pattern[known].astype(int), at_q[known], at_k[known]] = True
    return seen[1] if np.all(seen[0] ^ seen[1]) else None
