"""`stories`: small-world English in which only the word behind a pronoun decides how the story ends.

"The pizza came out of the oven and it tasted good", "The oven baked the pizza and it was switched off": the frame at
the start says which of two things the story is about. What stands between the frame and the ending is drawn without
looking at either, so whoever reads only the last few words can do no better than guess.
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
    """A sentence with two nouns; the story is `about` the first or the second."""

    says: str
    about: Literal[1, 2]


@dataclass(frozen=True)
class Scene:
    """Frames in which the first noun is of one class and the second of another."""

    classes: tuple[str, str]
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Kind:
    """A class of nouns, and the endings that fit it and no other."""

    pronouns: tuple[str, ...]
    nouns: tuple[str, ...]
    endings: tuple[str, ...]


@dataclass(frozen=True)
class World:
    """All that stories are made of."""

    articles: tuple[str, ...]
    adjectives: tuple[str, ...]
    fillers: tuple[str, ...]
    closings: tuple[str, ...]
    frames: tuple[Frame, ...]
    scenes: tuple[Scene, ...]
    classes: dict[str, Kind]


@cache
def world() -> World:
    """The small world, read once."""
    return config.read_file(World, Path(__file__).with_suffix(".toml"))


@dataclass(frozen=True)
class StoriesOptions:
    """`topic`: stories about things, people or both. `fillers`: at most so many clauses before the ending."""

    topic: Literal["all", "things", "people"] = "all"
    fillers: int = 2
    size: int = 60_000
    held_out: int = 2_000

    def __post_init__(self) -> None:
        if not 0 <= self.fillers <= len(world().fillers):
            raise InvalidInput(f"fillers is {self.fillers}; 0 to {len(world().fillers)} are possible.")


class Stories(Generated):
    """Stories with the referent known: `probes()` gives each with its right ending and the other noun's.

    >>> probe = Stories(StoriesOptions(fillers=0)).probe(1)
    >>> probe.prompt
    'My bus carried the rabbit and it'
    >>> probe.right, probe.wrong, probe.referent
    (' drove on to the next town.', ' shook the water from its fur.', 'bus')
    """

    name = "stories"
    says = "small stories in which a pronoun must be understood: only what it stands for decides the ending"
    suggests = MappingProxyType({"rows": "documents", "context": 64, "short": None, "batch": 48})
    """A story is short and whole: nothing before it helps to understand it."""

    def __init__(self, options: StoriesOptions | None = None, *, seed: int = 0) -> None:
        options = options or StoriesOptions()
        super().__init__(seed=seed, size=options.size, held_out=options.held_out)
        self.options = options
        kinds = {name: "things" if kind.pronouns == ("it",) else "people" for name, kind in world().classes.items()}
        topics = ["things", "people"] if options.topic == "all" else [options.topic]
        self._classes = {topic: [name for name, is_a in kinds.items() if is_a == topic] for topic in topics}

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Two nouns, a frame that points at one of them, words in between, and the ending of that one."""
        first, second, frame = self._draw_frame(rng)
        kinds = world().classes[first], world().classes[second]
        nouns = rng.choice(kinds[0].nouns), rng.choice(kinds[1].nouns)
        endings = [f" {rng.choice(kind.endings)}." for kind in kinds]
        pronoun = rng.choice(kinds[0].pronouns)
        said = frame.says.replace("{1}", _phrase(nouns[0], rng)).replace("{2}", _phrase(nouns[1], rng))
        between = rng.sample(world().fillers, rng.randint(0, self.options.fillers))
        prompt = " ".join([said[0].upper() + said[1:], *between, rng.choice(world().closings), pronoun])
        meant, other = frame.about - 1, 2 - frame.about
        probe = Probe(
            prompt, endings[meant], endings[other], nouns[meant], nouns[other], pronoun, (first, second)[meant]
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
        """How many worlds there are to be told."""
        kinds = [world().classes[name] for names in self._classes.values() for name in names]
        nouns, endings = sum(len(kind.nouns) for kind in kinds), sum(len(kind.endings) for kind in kinds)
        return {
            "made of": f"{len(kinds)} classes, {nouns} nouns, {endings} endings, {len(world().frames)} frames",
            "held out": "a tenth of all combinations of a frame and two nouns",
            "seed": str(self.seed),
        }


def _phrase(noun: str, rng: Random) -> str:
    """The noun with an article, and sometimes an adjective, that say nothing about its part in the story."""
    words = [rng.choice(world().adjectives), noun] if rng.random() < _ADJECTIVES else [noun]
    article = rng.choice(world().articles)
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    return " ".join([article, *words])
