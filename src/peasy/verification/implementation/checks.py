"""Checks after the formula is identified: masks, fully masked rows, causal flag, lengths, grouped-query attention."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from peasy.verification.implementation import layout as sizes
from peasy.verification.implementation.cache_check import check_cache, has_cache
from peasy.verification.implementation.case import CallSpec, Case
from peasy.verification.implementation.findings import Report
from peasy.verification.implementation.layout import NUM_KV_HEADS, MaskConvention, mask_conventions
from peasy.verification.implementation.mistake import CACHE_MISTAKES, MISTAKES, NAN_ROWS_CAUTION, TOP_LEFT_CAUTION
from peasy.verification.implementation.parameter_roles import declared_mask_meaning
from peasy.verification.implementation.search import Observation, find_variant, first_difference, reproduces
from peasy.verification.implementation.variant import Variant

MASK_MISTAKES = [mistake for mistake in MISTAKES if any("masking" in changes for changes in mistake.variant_changes)]
CAUSAL_MISTAKES = [
    mistake
    for mistake in MISTAKES
    if any({"causal", "attends_ahead", "masking"} & set(changes) for changes in mistake.variant_changes)
]
SEQ_LEN = sizes.NUM_QUERIES

Check = Callable[[Report, Case, MaskConvention | None, Variant], None]


def check_masks(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check the effect of masks in the accepted convention, and fully masked rows."""
    for role in ("mask", "padding"):
        if report.binding.has_roles(role):
            _check_mask(report, case, variant, role)


def _check_mask(report: Report, case: Case, variant: Variant, role: str) -> None:
    mask = case.seeded.mask(case.layout.batch_size, SEQ_LEN, SEQ_LEN)
    declared = declared_mask_meaning(report.description, report.binding.parameter_names(role))
    tried: list[tuple[MaskConvention, Observation]] = []
    for convention in mask_conventions(case.layout, role, declared):
        result = case.run(CallSpec(SEQ_LEN, SEQ_LEN, mask, convention, role))
        tried += [(convention, result)] if isinstance(result, Observation) else []
    for count in (0, 1):
        for convention, observation in tried:
            match = find_variant([observation], [variant], MASK_MISTAKES, [count])
            if match is not None:
                report.checks.append("a mask" if role == "mask" else "a padding mask")
                report.conventions.append(
                    convention.summary if role == "mask" else convention.summary.replace("mask", "padding", 1)
                )
                report.add_mistakes(match.mistakes, first_difference(observation, variant))
                _check_masked_rows(report, case, convention, match.variant, role)
                return
    if tried:
        report.explained = False
        report.notes.append("No known mistake explains its outputs with a mask.")
        report.difference = report.difference or first_difference(tried[0][1], variant)
    else:
        report.notes.append("No known mask convention was accepted.")


def _check_masked_rows(report: Report, case: Case, convention: MaskConvention, variant: Variant, role: str) -> None:
    mask = case.seeded.mask(case.layout.batch_size, SEQ_LEN, SEQ_LEN)
    if "q" in convention.shape:
        mask[:, :, 1] = False
    else:
        mask[-1:] = False
    result = case.run(CallSpec(SEQ_LEN, SEQ_LEN, mask, convention, role))
    if not isinstance(result, Observation) or variant.masking != "before":
        return
    empty = ~np.isfinite(result.predict(variant))
    if empty.any() and np.isnan(result.actual[empty]).any():
        report.add_mistakes([NAN_ROWS_CAUTION])
    elif empty.any():
        report.conventions.append("fully masked rows give finite values, not NaN")


def check_causal(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check the causal flag."""
    if not report.binding.has_roles("causal"):
        return
    result = case.run(_with_full_mask(case, CallSpec(SEQ_LEN, SEQ_LEN, causal=True), convention))
    if not isinstance(result, Observation):
        return
    base = replace(variant, causal=0)
    match = find_variant([result], [base], CAUSAL_MISTAKES)
    if match is None:
        report.explained = False
        report.notes.append("No known mistake explains its outputs with the causal flag.")
        return
    report.checks.append("the causal flag")
    report.conventions.append(f"{report.binding.parameter_names('causal')[0]}=True is causal")
    report.add_mistakes(match.mistakes, first_difference(result, base))


def check_lengths(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check fewer queries than keys, and the alignment of the causal mask in that case."""
    if not (report.binding.has_roles("query", "key") or report.binding.has_roles("source")):
        return
    flag = report.binding.has_roles("causal")
    base = replace(variant, causal=0) if flag else variant
    result = case.run(_with_full_mask(case, CallSpec(3, sizes.NUM_KEYS, causal=flag), convention))
    if not isinstance(result, Observation):
        report.conventions.append("as many queries as keys")
        return
    report.checks.append("more keys than queries")
    if reproduces(result, base):
        return
    if base.causal is not None and reproduces(result, replace(base, causal_alignment="start")):
        mistake = CACHE_MISTAKES[0] if has_cache(report.binding) else TOP_LEFT_CAUTION
        report.add_mistakes([mistake], first_difference(result, base))
    elif not report.findings:
        report.explained = False
        report.notes.append("No known mistake explains its outputs with more keys than queries.")
        report.difference = first_difference(result, base)


def check_grouped_query(report: Report, case: Case, convention: MaskConvention | None, variant: Variant) -> None:
    """Check grouped-query attention: fewer key/value heads than query heads, if accepted."""
    if case.projection is not None or case.layout.num_heads == 1:
        return
    result = case.run(_with_full_mask(case, CallSpec(SEQ_LEN, SEQ_LEN, grouped_query=True), convention))
    if not isinstance(result, Observation):
        return
    if reproduces(result, variant):
        report.conventions.append("grouped-query attention: adjacent query heads share a key/value head")
        report.checks.append(f"{case.layout.num_heads} query heads, {NUM_KV_HEADS} key/value heads")
    elif reproduces(result, replace(variant, group_order="tile")):
        tiled = [mistake for mistake in MISTAKES if mistake.variant_changes == [{"group_order": "tile"}]]
        report.add_mistakes(tiled, first_difference(result, variant))


def _with_full_mask(case: Case, spec: CallSpec, convention: MaskConvention | None) -> CallSpec:
    """Return the call with an all-True mask if the target requires a mask."""
    if convention is None:
        return spec
    mask = np.ones((case.layout.batch_size, 1, spec.num_queries, spec.num_keys), dtype=bool)
    return replace(spec, mask=mask, convention=convention)


CHECKS: tuple[Check, ...] = (check_masks, check_causal, check_lengths, check_grouped_query, check_cache)
