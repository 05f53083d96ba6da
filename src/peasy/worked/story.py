"""Attention of one query in sentences: its weights in percent and the largest contribution to its context."""

import math

from peasy.errors import InvalidInput
from peasy.parameters import Record
from peasy.worked.arithmetic import find_index
from peasy.worked.example import Vector
from peasy.worked.label import format_number, format_percent, token_label
from peasy.worked.solver import WorkedExample, WorkedStep

_MAX_NAMED_KEYS = 8
"""Maximum number of keys named in a sentence; the others are summed up."""


class KeyShare(Record):
    """One key as seen by the query: score, weight, value, and its contribution (weight times value)."""

    token: str
    is_self: bool
    masked: bool
    weight: float
    score: float | None = None
    value: Vector = ()
    contribution: Vector = ()

    @property
    def magnitude(self) -> float:
        """L1 norm of the contribution."""
        return float(sum(abs(part) for part in self.contribution))


class QueryDescription(Record):
    """Attention of one query: a share for each key, and sentences that describe them; `scope` is head or block."""

    token: str
    position: int
    scope: str
    shares: tuple[KeyShare, ...]
    context: Vector
    sentences: tuple[str, ...]


def describe_query(worked: WorkedExample, query: int | str, decimals: int = 4, scope: str = "") -> QueryDescription:
    """Describe the attention of one query, given by position or token, in a head or block (`scope`).

    >>> from peasy.worked import load_example, solve
    >>> print(describe_query(solve(load_example("i-love-ai")), "I").sentences[0])
    "I" gives 19.8 % of its attention to itself, 40.1 % to "love" and 40.1 % to "AI".
    """
    weights = worked.find_step("weights", scope)
    if weights is None:
        raise InvalidInput("This example has no attention weights.", hint="Leave --query out.")
    row = find_index(query, weights.rows, "word")
    shares = tuple(_key_share(worked, weights, row, key) for key in range(len(weights.columns)))
    context = worked.find_values("context", scope)
    context_row = () if context is None else tuple(context[row].tolist())
    sentences = [_describe_weights(worked.example.normalise, weights.rows[row], shares, decimals)]
    masked = [_key_name(share) for share in shares if share.masked]
    if 0 < len(masked) < len(shares):
        more = [f"{len(masked) - _MAX_NAMED_KEYS} more"] if len(masked) > _MAX_NAMED_KEYS else []
        sentences.append(f"It cannot attend to {_join_words(masked[:_MAX_NAMED_KEYS] + more)} (masked).")
    if context_row:
        sentences += _describe_largest_contribution(shares, context_row, decimals)
    return QueryDescription(weights.rows[row], row, scope, shares, context_row, tuple(sentences))


def _key_share(worked: WorkedExample, weights: WorkedStep, row: int, key: int) -> KeyShare:
    scores, masked_scores, value = (worked.find_values(n, weights.scope) for n in ("scores", "masked", "value"))
    is_self = not worked.example.source_tokens and weights.rows == weights.columns and row == key
    masked = worked.attention_mask is not None and not worked.attention_mask[row, key]
    masked = masked or (masked_scores is not None and masked_scores[row, key] == -math.inf)
    weight = float(weights.values[row, key])
    score = None if scores is None else float(scores[row, key])
    vectors = () if value is None else (tuple(value[key].tolist()), tuple((weight * value[key]).tolist()))
    return KeyShare(weights.columns[key], is_self, masked, weight, score, *vectors)


def _describe_weights(normalise: str, token: str, shares: tuple[KeyShare, ...], decimals: int) -> str:
    visible_shares = [share for share in shares if not share.masked]
    if not visible_shares:
        return f"{_quoted(token)} attends to nothing: all keys are masked, so its context is zero."
    named, rest = visible_shares, 0.0
    if len(visible_shares) > _MAX_NAMED_KEYS + 1:
        named = sorted(visible_shares, key=lambda share: -share.weight)[:_MAX_NAMED_KEYS]
        rest = sum(share.weight for share in visible_shares) - sum(share.weight for share in named)
    is_share = normalise != "none"

    def format_weight(weight: float) -> str:
        return format_percent(weight) if is_share else format_number(weight, decimals)

    word = "to" if is_share else "times"
    parts = [f"{format_weight(share.weight)} {word} {_key_name(share)}" for share in named]
    if len(visible_shares) > len(named):
        parts.append(f"{format_weight(rest)} to the other {len(visible_shares) - len(named)}")
    if is_share:
        parts[0] = parts[0].replace(" to ", " of its attention to ", 1)
    return f"{_quoted(token)} {'gives' if is_share else 'becomes'} {_join_words(parts)}."


def _describe_largest_contribution(shares: tuple[KeyShare, ...], context: Vector, decimals: int) -> list[str]:
    """Describe the largest contribution (weight times value): a large value can outweigh a small weight."""
    largest = max(shares, key=lambda share: share.magnitude)
    if largest.magnitude == 0:
        return []
    vectors = [_format_vector(vector, decimals) for vector in (largest.value, largest.contribution, context)]
    product = f"{format_number(largest.weight, decimals)} · {vectors[0]} = {vectors[1]}"
    part = "Most" if sum(share.magnitude > 0 for share in shares) > 1 else "All"
    source = f"{part} of its context comes from {_key_name(largest)}: {product}"
    sentences = [f"{source}; the whole context is {vectors[2]}."]
    heaviest = max(share.weight for share in shares)
    if largest.weight < heaviest - 1e-12:
        sentences.append("Other keys have a larger weight, but this one has the larger value vector.")
    elif sum(abs(share.weight - heaviest) <= 1e-12 for share in shares) > 1:
        sentences.append(
            "Other keys have the same weight; this one contributes more because its value vector is larger."
        )
    return sentences


def _key_name(share: KeyShare) -> str:
    return "itself" if share.is_self else _quoted(share.token)


def _quoted(token: str) -> str:
    return f'"{token_label(token)}"'


def _join_words(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _format_vector(numbers: Vector, decimals: int) -> str:
    shown = [format_number(number, decimals) for number in numbers[:6]]
    return f"[{', '.join(shown)}{', ...' if len(numbers) > 6 else ''}]"
