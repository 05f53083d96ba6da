"""Checks after the formula is identified (masks, causal flag, lengths, grouped queries, KV cache), or instead of it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation import variant as sizes
from peasy.verification.implementation.call_binding import declared_mask_meaning
from peasy.verification.implementation.case import CallSpec, Case
from peasy.verification.implementation.mistake import CATALOGUE, MISTAKES, Observation, Report, find_variant
from peasy.verification.implementation.target import Arg, ResultReference, Target
from peasy.verification.implementation.variant import (
    FLAT_LAYOUTS,
    NUM_KV_HEADS,
    Array,
    MaskConvention,
    SeededInputs,
    TensorLayout,
    Variant,
    apply_rope,
    mask_conventions,
)

_MISTAKE_BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
_MASK_MISTAKES = [mistake for mistake in MISTAKES if any("masking" in changes for changes in mistake.variant_changes)]
_CAUSAL_MISTAKES = [
    mistake
    for mistake in MISTAKES
    if any({"causal", "attends_ahead", "masking"} & set(changes) for changes in mistake.variant_changes)
]
_SEQ_LEN, _PREFIX_LENGTH = sizes.NUM_QUERIES, 3

_Check = Callable[[Report, Case, MaskConvention | None, Variant], None]


def _check_masks(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check the effect of masks in the accepted convention, and fully masked rows."""
    for role in ("mask", "padding"):
        if report.binding.has_roles(role):
            _check_mask(report, case, variant, role)


def _check_mask(report: Report, case: Case, variant: Variant, role: str) -> None:
    mask = case.seeded.mask(case.layout.batch_size, _SEQ_LEN, _SEQ_LEN)
    declared = declared_mask_meaning(report.description, report.binding.parameter_names(role))
    tried: list[tuple[MaskConvention, Observation]] = []
    for convention in mask_conventions(case.layout, role, declared):
        result = case.run(CallSpec(_SEQ_LEN, _SEQ_LEN, mask, convention, role))
        tried += [(convention, result)] if isinstance(result, Observation) else []
    for count in (0, 1):
        for convention, observation in tried:
            match = find_variant([observation], [variant], _MASK_MISTAKES, [count])
            if match is not None:
                report.checks.append("a mask" if role == "mask" else "a padding mask")
                report.conventions.append(convention.summary.replace("mask", role, 1))
                report.add_mistakes(*match[1], difference=observation.first_difference(variant))
                _check_masked_rows(report, case, convention, match[0], role)
                return
    if tried:
        report.set_unexplained("with a mask", tried[0][1].first_difference(variant))
    else:
        report.notes.append("No known mask convention was accepted.")


def _check_masked_rows(report: Report, case: Case, convention: MaskConvention, variant: Variant, role: str) -> None:
    mask = case.seeded.mask(case.layout.batch_size, _SEQ_LEN, _SEQ_LEN)
    if "q" in convention.shape:
        mask[:, :, 1] = False
    else:
        mask[-1:] = False
    result = case.run(CallSpec(_SEQ_LEN, _SEQ_LEN, mask, convention, role))
    if not isinstance(result, Observation) or variant.masking != "before":
        return
    empty = ~np.isfinite(result.predict(variant))
    if empty.any() and np.isnan(result.actual[empty]).any():
        report.add_mistakes(CATALOGUE.nan_rows)
    elif empty.any():
        report.conventions.append("fully masked rows give finite values, not NaN")


def _check_causal(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check the causal flag."""
    if not report.binding.has_roles("causal"):
        return
    result = case.run(case.with_full_mask(CallSpec(_SEQ_LEN, _SEQ_LEN, causal=True), convention))
    if not isinstance(result, Observation):
        return
    base = replace(variant, causal=0)
    match = find_variant([result], [base], _CAUSAL_MISTAKES)
    if match is None:
        report.set_unexplained("with the causal flag")
        return
    report.checks.append("the causal flag")
    report.conventions.append(f"{report.binding.parameter_names('causal')[0]}=True is causal")
    report.add_mistakes(*match[1], difference=result.first_difference(base))


def _check_lengths(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check fewer queries than keys, and the alignment of the causal mask in that case."""
    if not (report.binding.has_roles("query", "key") or report.binding.has_roles("source")):
        return
    flag = report.binding.has_roles("causal")
    base = replace(variant, causal=0) if flag else variant
    result = case.run(case.with_full_mask(CallSpec(3, sizes.NUM_KEYS, causal=flag), convention))
    if not isinstance(result, Observation):
        report.conventions.append("as many queries as keys")
        return
    report.checks.append("more keys than queries")
    if result.matches(base):
        return
    if base.causal is not None and result.matches(replace(base, causal_alignment="start")):
        mistake = CATALOGUE.cache_mistakes[0] if _has_cache(report) else CATALOGUE.top_left
        report.add_mistakes(mistake, difference=result.first_difference(base))
    elif not report.findings:
        report.set_unexplained("with more keys than queries", result.first_difference(base))


def _check_grouped_query(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check grouped-query attention: fewer key/value heads than query heads, if accepted."""
    if case.projection is not None or case.layout.num_heads == 1:
        return
    result = case.run(case.with_full_mask(CallSpec(_SEQ_LEN, _SEQ_LEN, grouped_query=True), convention))
    if not isinstance(result, Observation):
        return
    if result.matches(variant):
        report.conventions.append("grouped-query attention: adjacent query heads share a key/value head")
        report.checks.append(f"{case.layout.num_heads} query heads, {NUM_KV_HEADS} key/value heads")
    elif result.matches(replace(variant, group_order="tile")):
        report.add_mistakes(_MISTAKE_BY_NAME["kv heads tiled"], difference=result.first_difference(variant))


def _has_cache(report: Report) -> bool:
    return any(report.binding.has_roles(role) for role in ("cache", "past_key", "offset"))


def _check_cache(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Compare the second chunk, computed with the cache, with the formula on the whole sequence."""
    if not _has_cache(report) or convention is not None:
        return
    flag = report.binding.has_roles("causal")
    variant = replace(variant, causal=0) if flag else variant
    observations = list(_second_chunk_observations(case, CallSpec(_SEQ_LEN, _SEQ_LEN, causal=flag)))
    if not observations:
        report.notes.append("How to pass its cache could not be inferred from its signature.")
        return
    report.checks.append("a sequence in two chunks, with its cache")
    if any(observation.matches(variant) for observation in observations):
        return
    *position_mistakes, unused = CATALOGUE.cache_mistakes
    for mistake in position_mistakes:
        for observation in observations:
            if any(observation.matches(changed) for changed in mistake.apply_to(variant)):
                report.add_mistakes(mistake, difference=observation.first_difference(variant))
                return
    difference = observations[0].first_difference(variant)
    for observation in observations:
        key, value = (array[..., _PREFIX_LENGTH:, :] for array in (observation.inputs.key, observation.inputs.value))
        uncached = replace(observation, inputs=replace(observation.inputs, key=key, value=value, num_cached=0))
        if uncached.matches(variant) or uncached.matches(replace(variant, offset_positions=False)):
            report.add_mistakes(unused, difference=difference)
            return
    report.set_unexplained("in two chunks with its cache", difference)


def _second_chunk_observations(case: Case, spec: CallSpec) -> Iterator[Observation]:
    """Yield the observation of the second chunk for every way to pass the cache that works."""
    arrays, inputs = case.build_inputs(spec)
    inputs = replace(inputs, query=inputs.query[..., _PREFIX_LENGTH:, :], num_cached=_PREFIX_LENGTH)
    scalars, arrange, has_roles = case.scalar_values(spec), case.layout.arrange, case.binding.has_roles
    first = {role: arrange(array[..., :_PREFIX_LENGTH, :]) for role, array in arrays.items()}
    second = {role: arrange(array[..., _PREFIX_LENGTH:, :]) for role, array in arrays.items()}
    caches: list[dict[str, Arg]] = [{}]
    if has_roles("past_key", "past_value"):  # keys without RoPE, or with RoPE already applied
        key, value = inputs.key[..., :_PREFIX_LENGTH, :], inputs.value[..., :_PREFIX_LENGTH, :]
        keys = [key, *(apply_rope(key, np.arange(_PREFIX_LENGTH), layout) for layout in ("halves", "pairs"))]
        caches = [{"past_key": arrange(past), "past_value": arrange(value)} for past in keys]
    else:
        start: dict[str, Arg] = {"offset": 0, "use_cache": True}
        prefill = case.call(scalars | first | {role: value for role, value in start.items() if has_roles(role)})
        if prefill.fault is not None:
            return
        if has_roles("cache"):  # any part of the result: other objects first, then arrays after the first
            paths = (*sorted(prefill.objects, key=len), *sorted(prefill.arrays, key=len)[1:])
            caches = [{"cache": ResultReference(prefill.call_index, path)} for path in paths]
    offset: dict[str, Arg] = {"offset": _PREFIX_LENGTH} if has_roles("offset") else {}
    for cache in caches:
        observation = case.find_context(inputs, case.call(scalars | second | offset | cache))
        if observation is not None:
            yield observation


CHECKS: tuple[_Check, ...] = (_check_masks, _check_causal, _check_lengths, _check_grouped_query, _check_cache)


def check_dependence(report: Report, target: Target, seeded: SeededInputs, widths: Sequence[int]) -> None:
    """Dependence test without known weights: which input tokens change which outputs, for one of these `widths`."""
    for axes, width in ((axes, width) for width in widths for axes in FLAT_LAYOUTS):
        layout = TensorLayout(axes, True)
        x = seeded.array("x", layout.batch_size, _SEQ_LEN, width)
        baseline = _run_layout(report, target, layout, x)
        if baseline is not None:
            break
    else:
        raise InvalidInput(
            f"{report.binding.summary()} did not work with one input of shape (batch, time, width).",
            hint=f'Give the call: --call "{report.binding.name}({sizes.D_MODEL}, {sizes.NUM_HEADS})(x)"',
        )
    report.checks.append("the same input twice")
    again = _run_layout(report, target, layout, x)
    if again is None or not np.array_equal(baseline, again, equal_nan=True):
        report.add_mistakes(CATALOGUE.dropout)
        return
    pattern, independent = np.zeros((_SEQ_LEN, _SEQ_LEN), dtype=bool), True
    for token in range(_SEQ_LEN):
        changed = x.copy()
        changed[0, token] += 1.0
        output = _run_layout(report, target, layout, changed)
        assert output is not None, "the same call has worked"
        changes = np.abs(output - baseline).max(axis=-1) > 1e-6
        pattern[:, token] = changes[0]
        independent = independent and not changes[1:].any()
    report.checks.append("which tokens attend to which")
    _report_pattern(report, pattern, independent)


def _run_layout(report: Report, target: Target, layout: TensorLayout, x: Array) -> Array | None:
    """Call the target with `[batch, time, width]` in this layout; return its output likewise, None if it fails."""
    inputs = layout.arrange(x)
    roles: dict[str, Arg] = dict.fromkeys(("x", "query", "key", "value", "source"), inputs)
    bound = report.binding.bind({**roles, "causal": True})
    arrays = {} if bound is None else target.call(*bound).arrays
    for output in arrays.values():
        if output.shape[:-1] == inputs.shape[:-1]:
            return np.asarray({"tbd": output.swapaxes(0, 1), "td": output[None]}.get(layout.axes, output))
    return None


def _report_pattern(report: Report, pattern: Array, independent: bool) -> None:
    """Report what an attention pattern `[query, key]` shows, and whether the sequences of a batch are independent."""
    ones = np.ones_like(pattern)
    patterns = {
        "causal mask off by one (future)": [np.tril(ones, 1)],
        "causal mask off by one (self)": [np.tril(ones, -1)],
        "mask inverted": [np.triu(ones), np.triu(ones, 1)],
    }
    names = [name for name, wrong in patterns.items() if any((pattern == each).all() for each in wrong)]
    if not independent:
        names = ["heads split by a wrong reshape"]
    if names:
        report.add_mistakes(_MISTAKE_BY_NAME[names[0]])
    elif pattern.all():
        report.conventions.append("bidirectional")
    elif (pattern == np.tril(ones)).all():
        report.conventions.append("always causal")
    else:
        report.explained = False
        report.notes.append("The attention pattern is neither bidirectional nor causal.")
