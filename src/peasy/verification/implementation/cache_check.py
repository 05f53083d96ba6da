"""KV cache check: a sequence in two chunks must give the same as in one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from peasy.verification.implementation import layout as sizes
from peasy.verification.implementation.call_binding import CallBinding
from peasy.verification.implementation.case import CallSpec, Case
from peasy.verification.implementation.findings import Report
from peasy.verification.implementation.layout import MaskConvention
from peasy.verification.implementation.mistake import CACHE_MISTAKES
from peasy.verification.implementation.search import Observation, first_difference, reproduces
from peasy.verification.implementation.target import CallResult, ResultReference
from peasy.verification.implementation.variant import Variant, VariantInputs, apply_rope

TOTAL_LENGTH, PREFIX_LENGTH = sizes.NUM_QUERIES, 3


def has_cache(binding: CallBinding) -> bool:
    """Return whether the signature has a cache."""
    return any(binding.has_roles(role) for role in ("cache", "past_key", "offset"))


def check_cache(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Compare the second chunk, computed with the cache, with the formula on the whole sequence."""
    if not has_cache(report.binding) or convention is not None:
        return
    flag = report.binding.has_roles("causal")
    variant = replace(variant, causal=0) if flag else variant
    spec = CallSpec(TOTAL_LENGTH, TOTAL_LENGTH, causal=flag)
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
    report.explained = False
    report.notes.append("No known mistake explains its outputs in two chunks with its cache.")
    report.difference = report.difference or first_difference(observations[0], variant)


def _second_chunk_observations(case: Case, spec: CallSpec) -> Iterator[Observation | None]:
    """Yield the observation of the second chunk for every way to pass the cache that works."""
    arrays, inputs = case.build_inputs(spec)
    inputs = replace(inputs, query=inputs.query[..., PREFIX_LENGTH:, :], num_cached=PREFIX_LENGTH)
    scalars = case.scalar_values(spec)
    first = {role: case.layout.arrange(array[..., :PREFIX_LENGTH, :]) for role, array in arrays.items()}
    second = {role: case.layout.arrange(array[..., PREFIX_LENGTH:, :]) for role, array in arrays.items()}
    offset = {"offset": PREFIX_LENGTH} if case.binding.has_roles("offset") else {}
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


def _past_arguments(case: Case, inputs: VariantInputs) -> Iterator[dict[str, Any]]:
    """Yield cached keys and values; keys without RoPE, or with RoPE already applied."""
    key, value = inputs.key[..., :PREFIX_LENGTH, :], inputs.value[..., :PREFIX_LENGTH, :]
    positions = np.arange(PREFIX_LENGTH)
    for keys in (key, apply_rope(key, positions, "halves"), apply_rope(key, positions, "pairs")):
        yield {"past_key": case.layout.arrange(keys), "past_value": case.layout.arrange(value)}


def _cache_candidates(result: CallResult) -> Iterator[ResultReference]:
    """Yield the parts of a result that may be the cache: other objects first, then arrays after the first."""
    for path in sorted(result.objects, key=len):
        yield ResultReference(result.call_index, path)
    for path in sorted(result.arrays, key=len)[1:]:
        yield ResultReference(result.call_index, path)


def _without_cached(inputs: VariantInputs) -> VariantInputs:
    return replace(
        inputs, key=inputs.key[..., PREFIX_LENGTH:, :], value=inputs.value[..., PREFIX_LENGTH:, :], num_cached=0
    )
