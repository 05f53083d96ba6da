"""The flags of how tokens are chosen, in one place."""

from dataclasses import dataclass
from typing import Annotated, Any

from cyclopts import Group, Parameter

CHOOSING = Group("How tokens are chosen", sort_key=50)


@Parameter(name="*", group=CHOOSING)
@dataclass(frozen=True, kw_only=True)
class Choosing:
    """What a person can say about it; the same words as `peasy.generation.Sampling`."""

    temperature: float = 0.0
    "0 takes the best token each time; higher is more daring."
    top_k: int | None = None
    "Draw only from so many of the likeliest tokens."
    top_p: float = 1.0
    "Draw only from the likeliest tokens that have this share together."
    min_p: float = 0.0
    "Draw only from tokens with this share of the likeliest one's chance."
    repetition_penalty: float = 1.0
    "Above 1, tokens that were there already are less likely."
    presence_penalty: float = 0.0
    "Taken from the score of every token that was written before."
    frequency_penalty: float = 0.0
    "The same, for each time it was written."
    stop: Annotated[list[str] | None, Parameter(negative="")] = None
    "End before this text; may be given several times."

    def settings(self) -> dict[str, Any]:
        """As the settings of sampling."""
        return vars(self) | {"stop": tuple(self.stop or ())}
