"""Synthetic pronoun-resolution corpus `stories`: only the referent of a pronoun decides how a story ends.

"The pizza came out of the oven and it tasted good", "The oven baked the pizza and it was switched off": the first
clause determines which of two nouns the pronoun refers to. The words between it and the ending are drawn independently
of both, so a model that sees only the last few words can do no better than chance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Literal

from peasy import config
from peasy.corpora.generated import Generated
from peasy.corpora.sample import Probe
from peasy.errors import InvalidInput

_SCENES = 0.25
_ADJECTIVES = 0.3


@dataclass(frozen=True)
class Frame:
    """Clause with two nouns; the pronoun refers to the first or the second."""

    says: str
    about: Literal[1, 2]


@dataclass(frozen=True)
class Scene:
    """Clauses whose first noun is of one class and whose second noun is of another."""

    classes: tuple[str, str]
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Kind:
    """Class of nouns, with the endings that fit it and no other."""

    pronouns: tuple[str, ...]
    nouns: tuple[str, ...]
    endings: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """Word lists and sentence templates of the corpus."""

    articles: tuple[str, ...]
    adjectives: tuple[str, ...]
    fillers: tuple[str, ...]
    closings: tuple[str, ...]
    frames: tuple[Frame, ...]
    scenes: tuple[Scene, ...]
    classes: dict[str, Kind]


@cache
def world() -> World:
    """Return the word lists, read once."""
    return config.read_file(World, Path(__file__).with_suffix(".toml"))


@dataclass(frozen=True)
class StoriesOptions:
    """`topic`: stories about things, people or both. `max_fillers`: most clauses before the ending."""

    topic: Literal["all", "things", "people"] = "all"
    fillers: int = 2
    size: int = 60_000
    held_out: int = 2_000

    def __post_init__(self) -> None:
        if not 0 <= self.fillers <= len(world().fillers):
            raise InvalidInput(f"max_fillers is {self.fillers}; it must be between 0 and {len(world().fillers)}.")


class Stories(Generated):
    """Stories with a known referent: `probes()` yields each with its correct ending and that of the other noun.

    >>> probe = Stories(StoriesOptions(fillers=0)).probe(1)
    >>> probe.prompt
    'My bus carried the rabbit and it'
    >>> probe.right, probe.wrong, probe.referent
    (' drove on to the next town.', ' shook the water from its fur.', 'bus')
    """

    name = "stories"
    says = "short stories that test pronoun resolution: only the referent of a pronoun decides the ending"
    suggests = MappingProxyType({"rows": "documents", "context": 64, "short": None, "batch": 48})
    """A story is short and complete: nothing before it helps to predict it."""

    def __init__(self, options: StoriesOptions | None = None, *, seed: int = 0) -> None:
        options = options or StoriesOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options
        kinds = {name: "things" if kind.pronouns == ("it",) else "people" for name, kind in world().classes.items()}
        topics = ["things", "people"] if options.topic == "all" else [options.topic]
        self._classes = {topic: [name for name, kind_topic in kinds.items() if kind_topic == topic] for topic in topics}

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw two nouns, a clause that selects one of them, words in between, and the ending of that noun."""
        first, second, frame = self._draw_frame(rng)
        kinds = world().classes[first], world().classes[second]
        nouns = rng.choice(kinds[0].nouns), rng.choice(kinds[1].nouns)
        endings = [f" {rng.choice(kind.endings)}." for kind in kinds]
        pronoun = rng.choice(kinds[0].pronouns)
        clause = frame.says.replace("{1}", _phrase(nouns[0], rng)).replace("{2}", _phrase(nouns[1], rng))
        fillers = rng.sample(world().fillers, rng.randint(0, self.options.fillers))
        prompt = " ".join([clause[0].upper() + clause[1:], *fillers, rng.choice(world().closings), pronoun])
        referent, other = frame.about - 1, 2 - frame.about
        probe = Probe(
            prompt, endings[referent], endings[other], nouns[referent], nouns[other], pronoun, (first, second)[referent]
        )
        return f"{frame.says}|{nouns[0]}|{nouns[1]}", probe

    def _draw_frame(self, rng: Random) -> tuple[str, str, Frame]:
        topic = rng.choices(list(self._classes), [len(names) for names in self._classes.values()])[0]
        if topic == "things" and rng.random() < _SCENES:
            scene = rng.choice(world().scenes)
            return *scene.classes, rng.choice(scene.frames)
        first, second = rng.sample(self._classes[topic], 2)
        return first, second, rng.choice(world().frames)

    def notes(self) -> Mapping[str, str]:
        """Return the vocabulary sizes and the split rule."""
        kinds = [world().classes[name] for names in self._classes.values() for name in names]
        nouns, endings = sum(len(kind.nouns) for kind in kinds), sum(len(kind.endings) for kind in kinds)
        return {
            "made of": f"{len(kinds)} classes, {nouns} nouns, {endings} endings, {len(world().frames)} frames",
            "held out": "a tenth of all combinations of a clause and two nouns",
            "seed": str(self.seed),
        }


def _phrase(noun: str, rng: Random) -> str:
    """Return the noun with an article and sometimes an adjective, neither of which depends on its role."""
    words = [rng.choice(world().adjectives), noun] if rng.random() < _ADJECTIVES else [noun]
    article = rng.choice(world().articles)
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    return " ".join([article, *words])
