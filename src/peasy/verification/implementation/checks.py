"""Checks after the formula is identified: masks, causal flag, lengths, grouped-query attention, KV cache."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from peasy.verification.implementation import layout as sizes
from peasy.verification.implementation.call_binding import CallBinding, declared_mask_meaning
from peasy.verification.implementation.case import CallSpec, Case
from peasy.verification.implementation.layout import NUM_KV_HEADS, MaskConvention, mask_conventions
from peasy.verification.implementation.mistake import (
    CACHE_MISTAKES,
    MISTAKES,
    NAN_ROWS_CAUTION,
    TOP_LEFT_CAUTION,
    Report,
)
from peasy.verification.implementation.search import Observation, find_variant, first_difference, reproduces
from peasy.verification.implementation.target import Arg, CallResult, ResultReference
from peasy.verification.implementation.variant import Variant, VariantInputs, apply_rope

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
                report.conventions.append(
                    convention.summary if role == "mask" else convention.summary.replace("mask", "padding", 1)
                )
                report.add_mistakes(match.mistakes, first_difference(observation, variant))
                _check_masked_rows(report, case, convention, match.variant, role)
                return
    if tried:
        report.set_unexplained("with a mask", first_difference(tried[0][1], variant))
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
        report.add_mistakes([NAN_ROWS_CAUTION])
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
    report.add_mistakes(match.mistakes, first_difference(result, base))


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
    if reproduces(result, base):
        return
    if base.causal is not None and reproduces(result, replace(base, causal_alignment="start")):
        mistake = CACHE_MISTAKES[0] if _has_cache(report.binding) else TOP_LEFT_CAUTION
        report.add_mistakes([mistake], first_difference(result, base))
    elif not report.findings:
        report.set_unexplained("with more keys than queries", first_difference(result, base))


def _check_grouped_query(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check grouped-query attention: fewer key/value heads than query heads, if accepted."""
    if case.projection is not None or case.layout.num_heads == 1:
        return
    result = case.run(case.with_full_mask(CallSpec(_SEQ_LEN, _SEQ_LEN, grouped_query=True), convention))
    if not isinstance(result, Observation):
        return
    if reproduces(result, variant):
        report.conventions.append("grouped-query attention: adjacent query heads share a key/value head")
        report.checks.append(f"{case.layout.num_heads} query heads, {NUM_KV_HEADS} key/value heads")
    elif reproduces(result, replace(variant, group_order="tile")):
        tiled = [mistake for mistake in MISTAKES if mistake.variant_changes == [{"group_order": "tile"}]]
        report.add_mistakes(tiled, first_difference(result, variant))


def _has_cache(binding: CallBinding) -> bool:
    return any(binding.has_roles(role) for role in ("cache", "past_key", "offset"))


def _check_cache(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Compare the second chunk, computed with the cache, with the formula on the whole sequence."""
    if not _has_cache(report.binding) or convention is not None:
        return
    flag = report.binding.has_roles("causal")
    variant = replace(variant, causal=0) if flag else variant
    spec = CallSpec(_SEQ_LEN, _SEQ_LEN, causal=flag)
    observations = [result for result in _second_chunk_observations(case, spec) if isinstance(result, Observation)]
    if not observations:
        report.notes.append("How to pass its cache could not be inferred from its signature.")
        return
    report.checks.append("a sequence in two chunks, with its cache")
    if any(reproduces(observation, variant) for observation in observations):
        return
    top_left, unshifted, unused = CACHE_MISTAKES
    for mistake in (top_left, unshifted):
        for observation in observations:
            if any(reproduces(observation, changed) for changed in mistake.apply_to(variant)):
                report.add_mistakes([mistake], first_difference(observation, variant))
                return
    uncached = [replace(observation, inputs=_without_cached(observation.inputs)) for observation in observations]
    variants = (variant, replace(variant, offset_positions=False))
    if any(reproduces(observation, changed) for observation in uncached for changed in variants):
        report.add_mistakes([unused], first_difference(observations[0], variant))
        return
    report.set_unexplained("in two chunks with its cache", first_difference(observations[0], variant))


def _second_chunk_observations(case: Case, spec: CallSpec) -> Iterator[Observation | None]:
    """Yield the observation of the second chunk for every way to pass the cache that works."""
    arrays, inputs = case.build_inputs(spec)
    inputs = replace(inputs, query=inputs.query[..., _PREFIX_LENGTH:, :], num_cached=_PREFIX_LENGTH)
    scalars = case.scalar_values(spec)
    first = {role: case.layout.arrange(array[..., :_PREFIX_LENGTH, :]) for role, array in arrays.items()}
    second = {role: case.layout.arrange(array[..., _PREFIX_LENGTH:, :]) for role, array in arrays.items()}
    offset = {"offset": _PREFIX_LENGTH} if case.binding.has_roles("offset") else {}
    if case.binding.has_roles("past_key", "past_value"):
        for past in _past_arguments(case, inputs):
            yield case.find_context(inputs, case.call(scalars | second | offset | past))
        return
    start = {"offset": 0} if case.binding.has_roles("offset") else {}
    prefill = case.call(scalars | first | start | ({"use_cache": True} if case.binding.has_roles("use_cache") else {}))
    if prefill.fault is not None:
        return
    if not case.binding.has_roles("cache"):
        yield case.find_context(inputs, case.call(scalars | second | offset))
        return
    for cache in _cache_candidates(prefill):
        yield case.find_context(inputs, case.call(scalars | second | offset | {"cache": cache}))


def _past_arguments(case: Case, inputs: VariantInputs) -> Iterator[dict[str, Arg]]:
    """Yield cached keys and values; keys without RoPE, or with RoPE already applied."""
    key, value = inputs.key[..., :_PREFIX_LENGTH, :], inputs.value[..., :_PREFIX_LENGTH, :]
    positions = np.arange(_PREFIX_LENGTH)
    for keys in (key, apply_rope(key, positions, "halves"), apply_rope(key, positions, "pairs")):
        yield {"past_key": case.layout.arrange(keys), "past_value": case.layout.arrange(value)}


def _cache_candidates(result: CallResult) -> Iterator[ResultReference]:
    """Yield the parts of a result that may be the cache: other objects first, then arrays after the first."""
    for path in (*sorted(result.objects, key=len), *sorted(result.arrays, key=len)[1:]):
        yield ResultReference(result.call_index, path)


def _without_cached(inputs: VariantInputs) -> VariantInputs:
    key, value = (array[..., _PREFIX_LENGTH:, :] for array in (inputs.key, inputs.value))
    return replace(inputs, key=key, value=value, num_cached=0)


CHECKS: tuple[_Check, ...] = (_check_masks, _check_causal, _check_lengths, _check_grouped_query, _check_cache)
