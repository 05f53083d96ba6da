"""Judgement of a reading, in the order of the data: projections, heads, scores, scale, mask, weights, context."""

from peasy.verification.implementation.comparison import compare
from peasy.verification.implementation.judgement import Context, Judgement
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.scale import judge_scale
from peasy.verification.implementation.sources import judge_groups, judge_operand_kinds, judge_sources, judge_tokens
from peasy.verification.implementation.weights import judge_half_precision, judge_weights


def judge(reading: Reading, context: Context, found: Judgement) -> None:
    """Judge one attention in the order of the data: projections, heads, scores, scale, mask, weights, context."""
    tokens = Judgement()
    understood = judge_tokens(reading, tokens)
    if understood or tokens.mistakes:
        judge_sources(reading, context, found)
    found.take(tokens)
    found.heads, found.mixed = max(found.heads, reading.core.shape[0]), found.mixed or tokens.mixed
    for text in tokens.unknown:
        found.not_understood(text)
    if not understood:
        return
    judge_operand_kinds(reading, context, found)
    judge_groups(reading, found)
    judge_scale(reading, context, found)
    judge_weights(reading, found)
    judge_half_precision(reading, found)
    weak = reading.replaced is not None and bool(reading.replaced.any())
    if not found.mistakes and not found.unknown and not weak:
        compare(reading, found)
