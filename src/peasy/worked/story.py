"""The story of one word: whom it looks at, in percent, and what it borrows from whom."""

from dataclasses import dataclass

import numpy as np

from peasy.errors import InvalidInput
from peasy.worked.arithmetic import place
from peasy.worked.label import visible
from peasy.worked.number import percent, show
from peasy.worked.work import Worked

MOST_NAMED = 8
"""A sentence names so many words; the others are summed up."""


@dataclass(frozen=True)
class Share:
    """What one key is to the query: its score and weight, and weight times value, which it contributes."""

    token: str
    itself: bool
    hidden: bool
    weight: float
    score: float | None = None
    value: tuple[float, ...] = ()
    contribution: tuple[float, ...] = ()

    @property
    def size(self) -> float:
        """How much it contributes, all columns together."""
        return float(sum(abs(part) for part in self.contribution))


@dataclass(frozen=True)
class Story:
    """One query's share of attention, key by key, and the sentences that tell it."""

    token: str
    position: int
    head: int
    shares: tuple[Share, ...]
    context: tuple[float, ...]
    sentences: tuple[str, ...]


def tell(worked: Worked, query: int | str, decimals: int = 4, head: int = 0) -> Story:
    """The story of one word, by position or by token.

    >>> from peasy.worked import load_example, work
    >>> print(tell(work(load_example("i-love-ai")), "I").sentences[0])
    "I" gives 19.8 % of its attention to itself, 40.1 % to "love" and 40.1 % to "AI".
    """
    weights = worked.find("weights", head)
    if weights is None:
        raise InvalidInput("This example has no weights, so no word looks at another.", hint="Leave --query out.")
    row = place(query, worked.tokens, "word")
    shares = tuple(_share(worked, row, key, head) for key in range(len(worked.keys)))
    context = worked.find("context", head)
    found = () if context is None else tuple(float(each) for each in context[row])
    told = [_looking(worked, row, shares, decimals), *_blind(worked, row, shares), *_borrowing(shares, found, decimals)]
    again = [index for index, token in enumerate(worked.tokens) if token == worked.tokens[row] and index != row]
    if again and not _is_position(query):
        places = " and ".join(map(str, again))
        told.append(f"This is the one at position {row}; the same word also stands at position {places}.")
    return Story(worked.tokens[row], row, head, shares, found, tuple(told))


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
    seen = [share for share in shares if not share.hidden]
    if not seen:
        return f"{_quoted(worked.tokens[row])} may look at nothing, so its context is zero."
    told, rest = seen, 0.0
    if len(seen) > MOST_NAMED + 1:
        told = sorted(seen, key=lambda share: -share.weight)[:MOST_NAMED]
        rest = sum(share.weight for share in seen) - sum(share.weight for share in told)
    shared = worked.example.normalise != "none"
    parts = [
        f"{_amount(share.weight, shared, decimals)} {'to' if shared else 'times'} {_name(share)}" for share in told
    ]
    if len(seen) > len(told):
        parts.append(f"{_amount(rest, shared, decimals)} to the other {len(seen) - len(told)}")
    if shared:
        parts[0] = parts[0].replace(" to ", " of its attention to ", 1)
        return f"{_quoted(worked.tokens[row])} gives {_listed(parts)}."
    return f"{_quoted(worked.tokens[row])} becomes {_listed(parts)}."


def _blind(worked: Worked, row: int, shares: tuple[Share, ...]) -> list[str]:
    hidden = [share for share in shares if share.hidden]
    if not hidden or len(hidden) == len(shares):
        return []
    named = [_name(share) for share in hidden[:MOST_NAMED]]
    if len(hidden) > MOST_NAMED:
        named.append(f"{len(hidden) - MOST_NAMED} more")
    return [f"It may not look at {_listed(named)}."]


def _borrowing(shares: tuple[Share, ...], context: tuple[float, ...], decimals: int) -> list[str]:
    """Weight times value: a large value can make up for a small weight."""
    if not context:
        return []
    most = max(shares, key=lambda share: share.size)
    if most.size == 0:
        return []
    vectors = [_vector(each, decimals) for each in (most.value, most.contribution, context)]
    borrowed = f"{show(most.weight, decimals)} · {vectors[0]} = {vectors[1]}"
    part = "most" if sum(share.size > 0 for share in shares) > 1 else "all"
    whom = f"keeps {part} of itself" if most.itself else f"borrows {part} from {_name(most)}"
    told = [f"It {whom}: {borrowed}, of a context of {vectors[2]}."]
    heaviest = max(share.weight for share in shares)
    if most.weight < heaviest - 1e-12:
        told.append("Others weigh more, but the value decides what a weight brings.")
    elif sum(abs(share.weight - heaviest) <= 1e-12 for share in shares) > 1:
        told.append("Others weigh the same; it brings more because its value is bigger.")
    return told


def _amount(weight: float, shared: bool, decimals: int) -> str:
    return percent(weight) if shared else show(weight, decimals)


def _name(share: Share) -> str:
    return "itself" if share.itself else _quoted(share.token)


def _quoted(token: str) -> str:
    return f'"{visible(token)}"'


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _vector(numbers: tuple[float, ...], decimals: int) -> str:
    shown = [show(each, decimals) for each in numbers[:6]]
    return f"[{', '.join(shown)}{', ...' if len(numbers) > 6 else ''}]"


def _floats(row: np.ndarray) -> tuple[float, ...]:
    return tuple(float(each) for each in row)


def _is_position(query: int | str) -> bool:
    return isinstance(query, int) or query.lstrip("-").isdigit()
