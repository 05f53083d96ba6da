"""Further calls after the first: other lengths, grouped heads, the causal flag, fully masked rows, a KV cache."""

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from peasy.verification.implementation.arguments import ROTARY_ROLES, constructor_attempts, seeded_array, source_of
from peasy.verification.implementation.call_text import call_of
from peasy.verification.implementation.core import Array, find_cores, is_activation
from peasy.verification.implementation.creation import is_module
from peasy.verification.implementation.forms import Attempt
from peasy.verification.implementation.judge import judge
from peasy.verification.implementation.judgement import Context, Judgement, line_that_sets, parameters_around, place_of
from peasy.verification.implementation.masks import builder_place, judge_pattern, mask_place, slicing_place
from peasy.verification.implementation.names import is_unspecific, projection_role, role_of
from peasy.verification.implementation.reading import Reading, read_cores
from peasy.verification.implementation.repeated_call import RepeatedCall, quiet
from peasy.verification.implementation.sources import idle_weights
from peasy.verification.implementation.trace import PRODUCTS, leaves, to_float

_PREFIX = 3
TILED = "query heads that share a key head are not neighbours (tiled)"
"""A convention of a class whose own weights fit it; a mistake for weights from elsewhere."""


def _read(subject: RepeatedCall, seed: int) -> Reading | None:
    """Read the first attention of a call; None if the call or the reading fails."""
    try:
        trace = subject.trace()
        cores = find_cores(trace)
        return read_cores(subject, trace, cores[:1], seed)[0] if cores else None
    except Exception:
        return None


def _changed(
    subject: RepeatedCall, inputs: Mapping[str, Array], constants: Mapping[str, Any] | None = None
) -> RepeatedCall:
    return replace(subject, inputs=dict(inputs), constants={**subject.constants, **(constants or {})})


def check_lengths(attempt: Attempt, reading: Reading, context: Context, found: Judgement, seed: int) -> str:
    """Call with more keys than queries; return what was tried, "" if the code does not take it."""
    longer = _with_more_keys(attempt, reading, seed)
    other = _read(longer, seed) if longer is not None else None
    if longer is None or other is None or not other.attended:
        return ""
    inner = Judgement()
    judge(other, context, inner)
    if _check_alignment(longer, other, found) or inner.unknown:
        inner.mistakes.clear()
    found.take(inner)
    return "more keys than queries"


def _with_more_keys(
    attempt: Attempt, reading: Reading, seed: int, constants: Mapping[str, object] | None = None
) -> RepeatedCall | None:
    """Return the call with more keys than queries; None if queries and keys are no separate inputs."""
    others = [name for name, role in attempt.roles.items() if role in ("key", "value", "source")]
    queries = [name for name, role in attempt.roles.items() if role in ("query", "x")]
    longer = _changed(attempt.subject, attempt.subject.inputs, constants)
    return _resized(longer, others, reading.attended[0], attempt.sizes.keys, seed) if others and queries else None


def _resized(subject: RepeatedCall, names: list[str], axis: int, size: int, seed: int) -> RepeatedCall:
    """Return the call with another size along an axis of some inputs."""
    shapes = {name: (*array.shape[:axis], size, *array.shape[axis + 1 :]) for name, array in subject.inputs.items()}
    fresh = {name: seeded_array(f"{name} of size {size}", shapes[name], seed) for name in names}
    return _changed(subject, {**subject.inputs, **fresh})


def _check_alignment(longer: RepeatedCall, reading: Reading, found: Judgement) -> bool:
    """Caution if a causal mask is aligned top-left with more keys than queries; return whether it is."""
    top_left = judge_pattern(longer, reading, False, Judgement()) == "top-left"
    if top_left:
        found.caution("causal top-left", builder_place(longer, reading))
    return top_left


def check_groups(attempt: Attempt, reading: Reading, context: Context, found: Judgement, seed: int) -> str:
    """Call a function with fewer key and value heads than query heads; return what was tried."""
    layout, others = attempt.layout, [name for name, role in attempt.roles.items() if role in ("key", "value")]
    if layout is None or layout.axes not in ("bht", "bth") or len(others) != 2 or not context.function:
        return ""
    head_axis = 3 - reading.attended[0] if reading.attended[0] in (1, 2) else 1
    queries = [name for name, role in attempt.roles.items() if role == "query"]
    several = _resized(attempt.subject, queries, head_axis, attempt.sizes.heads, seed)
    grouped = _resized(several, others, head_axis, max(attempt.sizes.heads // 2, 1), seed)
    other = _read(grouped, seed)
    if other is None:
        return ""
    inner = Judgement()
    judge(other, context, inner)
    if "kv heads tiled" in inner.mistakes and attempt.module is not None and not inspect.isfunction(attempt.module):
        found.convention(TILED)
        del inner.mistakes["kv heads tiled"]
    inner.compared = 0  # the first call was compared
    found.take(inner)
    return f"{attempt.sizes.heads // 2} key/value heads"


def check_causal_flag(attempt: Attempt, context: Context, found: Judgement, seed: int) -> str:
    """Call with the causal flag set, and judge it; return what was tried."""
    code = attempt.module.forward if is_module(attempt.module) else attempt.module
    for name in attempt.flag_names:
        subject = _changed(attempt.subject, attempt.subject.inputs, {name: True})
        reading = _read(subject, seed)
        if reading is None or not reading.attended:
            continue
        inner = Judgement()
        judge(reading, context, inner)
        kind = judge_pattern(subject, reading, True, inner)
        inner.compared = 0  # the first call was compared
        if kind == "causal":
            found.convention(f"{name}=True is causal")
            longer = _with_more_keys(attempt, reading, seed, {name: True})
            if longer is not None and (other := _read(longer, seed)) is not None and other.attended:
                _check_alignment(longer, other, found)
        masks = "|".join(map(re.escape, attempt.mask_names))
        waits = name == "is_causal" or re.search(rf"\b{name} and\b.*\b({masks})\b", source_of(code))
        if masks and waits and "named causal but not causal" in inner.mistakes:
            found.convention(f"{name}=True hides nothing without a mask")
            del inner.mistakes["named causal but not causal"]
        if {"mask value too small", "masked scores become 0"} & {*found.mistakes}:
            inner.mistakes.pop("named causal but not causal", None)
        found.take(inner)
        found.unknown += [f"With {name}=True: {text}" for text in inner.unknown]
        return "the causal flag"
    return ""


def check_masked_rows(subject: RepeatedCall, name: str, convention: Any, mask: Array, found: Judgement) -> None:
    """Call with a fully masked row: NaN is a caution."""
    if "q" not in convention.shape:
        return
    mask = mask.copy()
    mask[:, 1] = False
    value = convention.encode(mask)
    if convention.kind == "additive":
        value = np.where(value < 0, np.float32(-np.inf), value)
    try:
        arrays = subject.plain(constants={name: subject.as_argument(value)})
    except Exception:
        return
    if any(np.isnan(array).any() for array in arrays):
        found.caution("NaN on fully masked rows")


def check_output_projection(attempt: Attempt, reading: Reading, found: Judgement) -> None:
    """A layer that is named as the output projection must be used; of another one nothing is known."""
    trace, context = reading.trace, reading.core.context.index
    used = {op.index for _, source in trace.results if source for op in trace.ancestors(source[0])}
    if context not in used:
        return
    heads = {context}  # and what follows from them alone
    for op in trace.ops[context + 1 :]:
        sources = {source for source, _ in op.inputs if is_activation(trace.ops[source])}
        heads |= {op.index} if sources and sources <= heads else set()
    projected = any(trace.ops[index].name in PRODUCTS for index in (heads & used) - {context})
    for name in idle_weights(reading, attempt.subject.weights):
        part, role = name.removesuffix(".weight").rpartition(".")[2].lower(), projection_role([name])
        named = len(re.findall(rf"(?m)^[^#\n]*\bself\.{re.escape(part)}\b", source_of(type(attempt.module))))
        is_forgotten = is_unspecific(part) and named == 1 and not projected  # the constructor alone names it
        if role == "output" or is_forgotten:
            found.mistake("output projection not used")
        elif role == "" and not projected and attempt.subject.weights[name] == (attempt.sizes.d_model,) * 2:
            found.not_understood(f"{name} has no effect, and nothing follows the heads: an output projection?")


def check_cache(attempt: Attempt, reading: Reading, found: Judgement, seed: int) -> str:
    """Compare a sequence in two chunks, with the cache, with the same sequence in one call."""
    roles = {role_of(p.name): p.name for p in attempt.parameters}
    before = _own_cache(attempt)
    if not {"cache", "past_key", "offset"} & set(roles) and (before is None or "use_cache" not in roles):
        return ""
    subject, axis = attempt.subject, reading.attended[0]
    whole = subject.plain()
    if not whole or whole[0].shape[: axis + 1] != next(iter(subject.inputs.values())).shape[: axis + 1]:
        return ""
    text, best, size = "a sequence in two chunks, with its cache", None, whole[0].shape[axis]
    for prefix in (_PREFIX, size - 1):
        expected = np.take(whole[0], range(prefix, size), axis=axis)
        for second in _second_chunks(attempt, roles, axis, prefix):
            try:
                output = second.plain()[0]
            except Exception:
                continue
            if output.shape != expected.shape:
                continue
            best = best or second
            if np.allclose(output, expected, atol=2e-4 * max(1.0, float(np.abs(expected).max()))):
                if prefix > _PREFIX:
                    found.convention("its cache takes one token at a time")
                return text
    if best is not None:
        after = _own_cache(attempt)
        filled = before is not None and after is not None and not _equal_arrays(before, after)
        _name_cache_mistake(best, reading, bool({"cache", "past_key"} & set(roles)) or filled, found, seed)
    return text if best is not None else ""


def _second_chunks(attempt: Attempt, roles: Mapping[str, str], axis: int, prefix: int) -> Iterator[RepeatedCall]:
    """Yield the call of the second chunk for every way to pass the cache."""
    subject = attempt.subject
    size = next(iter(subject.inputs.values())).shape[axis]
    parts = [
        {name: np.take(array, indices, axis=axis) for name, array in subject.inputs.items()}
        for indices in (range(prefix), range(prefix, size))
    ]
    offset, before = ({roles["offset"]: n} if "offset" in roles else {} for n in (prefix, 0))
    tables = {role: name for role, name in roles.items() if role in (*ROTARY_ROLES, "position_ids")}
    own = {name: subject.constants[name] for name in tables.values() if subject.constants.get(name) is not None}
    offset |= {name: _rows_of(table, size, slice(prefix, None)) for name, table in own.items()}
    start = before | {name: _rows_of(table, size, slice(0, prefix)) for name, table in own.items()}
    if {"past_key", "past_value"} <= set(roles):
        by_role = {role: name for name, role in attempt.roles.items()}
        past = {roles[f"past_{part}"]: parts[0][by_role[part]] for part in ("key", "value") if part in by_role}
        if len(past) == 2:  # without projections: else the form of its keys and values is not known
            yield _changed(subject, parts[1], {n: subject.as_argument(value) for n, value in past.items()} | offset)
        return
    inputs = {name: subject.as_argument(array) for name, array in parts[0].items()}
    more = {roles["use_cache"]: True} if "use_cache" in roles else {}
    first = _changed(subject, parts[0], start | more)
    try:
        with quiet():
            import torch

            with torch.no_grad():
                result = first.run({**inputs, **first.constants})
    except Exception:
        return
    if "cache" not in roles:
        yield replace(_changed(subject, parts[1], offset | more), run=partial(_run_from, subject.run, _state(attempt)))
        return
    extra = list(result[1:]) if isinstance(result, tuple | list) else []
    made = [cache for cache in extra if len(list(leaves(cache)))]
    for cache in made or _filled_caches(attempt, first, roles["cache"]):
        second = _changed(subject, parts[1], {**offset, **more})
        second.constants.pop(roles["cache"], None)
        yield replace(second, run=partial(_run_with_cache, second.run, roles["cache"], cache))


def _rows_of(table: Any, size: int, rows: slice) -> Any:
    """Return the rows of some tokens of a table of positions: the first axis with the number of tokens."""
    if isinstance(table, tuple):
        return tuple(_rows_of(each, size, rows) for each in table)
    axis = next((axis for axis, length in enumerate(table.shape) if length == size), None)
    return table if axis is None else table[(slice(None),) * axis + (rows,)]


def _state(attempt: Attempt) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what each part of a module keeps, beside its parameters, and a copy."""
    objects = attempt.module.modules() if is_module(attempt.module) else [attempt.module]
    parts = [vars(each) for each in objects if hasattr(each, "__dict__") and not inspect.isclass(each)]
    return [(each, _copied(each)) for part in parts for each in (part, part.get("_buffers", {}))]


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the values that can be copied: libraries and locks cannot."""
    copies = dict[str, Any]()
    for name, value in values.items():
        with contextlib.suppress(Exception):
            copies |= {} if name[0] == "_" else {name: copy.deepcopy(value)}
    return copies


def _own_cache(attempt: Attempt) -> list[Array] | None:
    """Return the keys and values that a layer keeps, by the names of its attributes; None if it has no such ones."""
    named = r"cached?_(k|v|key|value)|(k|v|key|value)s?_?cache"
    found = [value for _, kept in _state(attempt) for name, value in kept.items() if re.search(named, name)]
    return [to_float(leaf) for value in found for leaf in leaves(value)] if found else None


def _equal_arrays(before: list[Array], after: list[Array]) -> bool:
    return len(before) == len(after) and all(map(np.array_equal, before, after))


def _run_from(
    run: Callable[[Mapping[str, Any]], object], state: list[tuple[dict[str, Any], dict[str, Any]]],
    values: Mapping[str, object],
) -> object:  # fmt: skip
    """Call with the state that was kept: a layer's own cache grows with each call."""
    for part, kept in state:
        part.update(kept)
    return run(values)


def _run_with_cache(
    run: Callable[[Mapping[str, Any]], object], name: str, cache: object, values: Mapping[str, object]
) -> object:
    """Call with a copy of the cache: a cache that is an object grows with each call."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        fresh = copy.deepcopy(cache)
    return run({**values, name: fresh})


def _filled_caches(attempt: Attempt, first: RepeatedCall, name: str) -> Iterator[object]:
    """Yield objects of the cache classes that the code knows, after the first chunk was written to them."""
    function = getattr(call_of(attempt.module), "__func__", attempt.module)
    for value in list(getattr(function, "__globals__", {}).values()):
        if not inspect.isclass(value) or "cache" not in value.__name__.lower():
            continue
        with contextlib.suppress(Exception), quiet():
            import torch

            cache = value(**next(constructor_attempts(value, attempt.sizes)))
            before = [to_float(leaf).copy() for leaf in leaves(cache)]
            with torch.no_grad():
                first.run({**first.tensors(first.inputs), **first.constants, name: cache})
            after = [to_float(leaf) for leaf in leaves(cache)]
            if not _equal_arrays(before, after):
                yield cache


def _name_cache_mistake(second: RepeatedCall, whole: Reading, has_cache: bool, found: Judgement, seed: int) -> None:
    """Name why the second chunk differs: no cached keys, a mask aligned top-left, or positions from 0."""
    try:
        trace = second.trace()
        core = find_cores(trace)[0]
        reading = read_cores(second, trace, [core], seed)[0]
    except Exception:
        found.not_understood("With its cache it gives other numbers than in one call.")
        return
    _, queries, keys = core.shape
    if keys == queries:
        if has_cache:
            found.mistake("cache not used")
        return
    ones = np.ones((queries, keys), bool)
    if reading.allowed is not None and all(np.array_equal(each, np.tril(ones)) for each in reading.allowed):
        place = slicing_place(reading) or builder_place(second, reading) or mask_place(reading)
        found.mistake("causal top-left with a cache", place)
        return
    rows = whole.product[:, -queries:, :]
    if rows.shape == reading.product.shape and not np.allclose(rows, reading.product, atol=1e-3):
        tables = [op for op in trace.ancestors(core.scores.index) if op.place and not op.roots
                  and queries in tuple(op.outputs[0].shape)]  # fmt: skip
        first = min(tables, key=lambda op: op.index, default=None)  # made of no input: the positions
        given = first is not None and first.callers and "offset" in map(role_of, parameters_around(first.place))
        place = first.callers[0] if first and given else place_of(first)
        chosen = line_that_sets(place, r"\b(\w*(?:pos|offset|start|past)\w*)\b(?!\()", "") if given else None
        found.mistake("positions not shifted with the cache", chosen or place)
        return
    found.not_understood("With its cache it gives other numbers than in one call.")


def rotary_is_relative(subject: RepeatedCall, reading: Reading) -> bool:
    """Return whether scores of equal tokens depend on their distance, and on nothing else, as with rotary positions."""
    inputs = {}
    for name, array in subject.inputs.items():
        lead = tuple(slice(0, 1) if axis in reading.attended else slice(None) for axis in range(array.ndim))
        inputs[name] = np.broadcast_to(array[lead], array.shape).copy()
    trace = subject.trace(inputs)
    op = trace.ops[reading.core.scores.index]
    product = reading.core.gather(op, op.outputs[0])
    distance = reading.query_times[:, :, None] - reading.key_times[:, None, :]
    same = np.tril(reading.query_times[:, :, None] == reading.query_times[:, None, :])
    heads = np.arange(len(product))[:, None] * same.shape[1] + same.sum(axis=-1)  # heads may share one matrix
    groups = heads[:, :, None] * (np.ptp(distance) + 1) + distance - distance.min()
    low, high = np.full(groups.max() + 1, np.inf), np.full(groups.max() + 1, -np.inf)
    np.minimum.at(low, groups, product)
    np.maximum.at(high, groups, product)
    smallest = 1e-3 * max(1.0, float(np.abs(product).max()))
    return bool(np.all(high - low <= smallest) and np.any(np.ptp(product, axis=(1, 2)) > smallest))
