"""Attention of one query in sentences: its weights in percent and the largest contribution to its context."""

from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.arithmetic import place
from peasy.worked.label import visible
from peasy.worked.number import percent, show
from peasy.worked.work import Worked

MOST_NAMED = 8
"""Maximum number of keys named in a sentence; the others are summed up."""


@dataclass(frozen=True)
class Share:
    """One key as seen by the query: score, weight, value, and its contribution (weight times value)."""

    token: str
    itself: bool
    hidden: bool
    weight: float
    score: float | None = None
    value: tuple[float, ...] = ()
    contribution: tuple[float, ...] = ()

    @property
    def size(self) -> float:
        """L1 norm of the contribution."""
        return float(sum(abs(part) for part in self.contribution))


@dataclass(frozen=True)
class Story:
    """Attention of one query: a share for each key, and sentences that describe them."""

    token: str
    position: int
    head: int
    shares: tuple[Share, ...]
    context: tuple[float, ...]
    sentences: tuple[str, ...]


def tell(worked: Worked, query: int | str, decimals: int = 4, head: int = 0) -> Story:
    """Describe the attention of one query, given by position or token.

    >>> from peasy.worked import load_example, work
    >>> print(tell(work(load_example("i-love-ai")), "I").sentences[0])
    "I" gives 19.8 % of its attention to itself, 40.1 % to "love" and 40.1 % to "AI".
    """
    weights = worked.find("weights", head)
    if weights is None:
        raise InvalidInput("This example has no attention weights.", hint="Leave --query out.")
    row = place(query, worked.tokens, "word")
    shares = tuple(_share(worked, row, key, head) for key in range(len(worked.keys)))
    context = worked.find("context", head)
    context_row = () if context is None else tuple(float(number) for number in context[row])
    sentences = [
        _looking(worked, row, shares, decimals),
        *_blind(worked, row, shares),
        *_borrowing(shares, context_row, decimals),
    ]
    repeats = [index for index, token in enumerate(worked.tokens) if token == worked.tokens[row] and index != row]
    if repeats and not _is_position(query):
        positions = " and ".join(map(str, repeats))
        sentences.append(f"This is the one at position {row}; the same word also occurs at position {positions}.")
    return Story(worked.tokens[row], row, head, shares, context_row, tuple(sentences))


def _share(worked: Worked, row: int, key: int, head: int) -> Share:
    weights, scores = worked.find("weights", head), worked.find("scores", head)
    value = worked.find("value", head)
    assert weights is not None
    itself = not worked.example.source_tokens and row == key
    hidden = worked.may_look is not None and not worked.may_look[row, key]
    weight = float(weights[row, key])
    score = None if scores is None else float(scores[row, key])
    if value is None:
        return Share(worked.keys[key], itself, hidden, weight, score)
    return Share(worked.keys[key], itself, hidden, weight, score, _floats(value[key]), _floats(weight * value[key]))


def _looking(worked: Worked, row: int, shares: tuple[Share, ...], decimals: int) -> str:
    visible_shares = [share for share in shares if not share.hidden]
    if not visible_shares:
        return f"{_quoted(worked.tokens[row])} attends to nothing: all keys are masked, so its context is zero."
    named, rest = visible_shares, 0.0
    if len(visible_shares) > MOST_NAMED + 1:
        named = sorted(visible_shares, key=lambda share: -share.weight)[:MOST_NAMED]
        rest = sum(share.weight for share in visible_shares) - sum(share.weight for share in named)
    is_share = worked.example.normalise != "none"
    parts = [
        f"{_amount(share.weight, is_share, decimals)} {'to' if is_share else 'times'} {_name(share)}" for share in named
    ]
    if len(visible_shares) > len(named):
        parts.append(f"{_amount(rest, is_share, decimals)} to the other {len(visible_shares) - len(named)}")
    if is_share:
        parts[0] = parts[0].replace(" to ", " of its attention to ", 1)
        return f"{_quoted(worked.tokens[row])} gives {_listed(parts)}."
    return f"{_quoted(worked.tokens[row])} becomes {_listed(parts)}."


def _blind(worked: Worked, row: int, shares: tuple[Share, ...]) -> list[str]:
    masked = [share for share in shares if share.hidden]
    if not masked or len(masked) == len(shares):
        return []
    named = [_name(share) for share in masked[:MOST_NAMED]]
    if len(masked) > MOST_NAMED:
        named.append(f"{len(masked) - MOST_NAMED} more")
    return [f"It cannot attend to {_listed(named)} (masked)."]


def _borrowing(shares: tuple[Share, ...], context: tuple[float, ...], decimals: int) -> list[str]:
    """Describe the largest contribution (weight times value): a large value can outweigh a small weight."""
    if not context:
        return []
    largest = max(shares, key=lambda share: share.size)
    if largest.size == 0:
        return []
    vectors = [_vector(vector, decimals) for vector in (largest.value, largest.contribution, context)]
    product = f"{show(largest.weight, decimals)} · {vectors[0]} = {vectors[1]}"
    part = "Most" if sum(share.size > 0 for share in shares) > 1 else "All"
    sentences = [f"{part} of its context comes from {_name(largest)}: {product}; the whole context is {vectors[2]}."]
    heaviest = max(share.weight for share in shares)
    if largest.weight < heaviest - 1e-12:
        sentences.append("Other keys have a larger weight, but this one has the larger value vector.")
    elif sum(abs(share.weight - heaviest) <= 1e-12 for share in shares) > 1:
        sentences.append(
            "Other keys have the same weight; this one contributes more because its value vector is larger."
        )
    return sentences


def _amount(weight: float, shared: bool, decimals: int) -> str:
    return percent(weight) if shared else show(weight, decimals)


def _name(share: Share) -> str:
    return "itself" if share.itself else _quoted(share.token)


def _quoted(token: str) -> str:
    return f'"{visible(token)}"'


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _vector(numbers: tuple[float, ...], decimals: int) -> str:
    shown = [show(number, decimals) for number in numbers[:6]]
    return f"[{', '.join(shown)}{', ...' if len(numbers) > 6 else ''}]"


def _floats(row: np.ndarray) -> tuple[float, ...]:
    return tuple(float(number) for number in row)


def _is_position(query: int | str) -> bool:
    return isinstance(query, int) or query.lstrip("-").isdigit()
