"""Synthetic pronoun-resolution corpus `stories`: only the referent of a pronoun decides how a story ends.

"The pizza came out of the oven and it tasted good", "The oven baked the pizza and it was switched off": the first
clause determines which of two nouns the pronoun refers to. The words between it and the ending are drawn independently
of both, so a model that sees only the last few words can do no better than chance.
"""

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Ge, Le

from peasy import config
from peasy.datasets.corpus import Probe, SyntheticConfig, SyntheticCorpus
from peasy.parameters import FrozenSettings

_SCENE_PROB = 0.25
_ADJECTIVE_PROB = 0.3


class StoryClause(FrozenSettings):
    """Clause with two nouns; the pronoun refers to the first or the second."""

    template: str
    referent: Literal[1, 2]


class _ClauseGroup(FrozenSettings):
    """Clauses whose first noun is of one class and whose second noun is of another."""

    classes: tuple[str, str]
    clauses: tuple[StoryClause, ...]


class _NounClass(FrozenSettings):
    """Class of nouns, with the endings that fit it and no other."""

    pronouns: tuple[str, ...]
    nouns: tuple[str, ...]
    endings: tuple[str, ...]


class StoryWords(FrozenSettings):
    """Word lists and sentence templates of the corpus."""

    articles: tuple[str, ...]
    adjectives: tuple[str, ...]
    fillers: tuple[str, ...]
    closings: tuple[str, ...]
    clauses: tuple[StoryClause, ...]
    clause_groups: tuple[_ClauseGroup, ...]
    noun_classes: dict[str, _NounClass]


@cache
def story_words() -> StoryWords:
    """Return the word lists, read once."""
    return config.read_file(StoryWords, Path(__file__).with_suffix(".toml"))


class StoriesConfig(SyntheticConfig):
    """Options of `stories`."""

    topic: Literal["all", "things", "people"] = "all"
    """Stories about things, people or both."""
    max_fillers: Annotated[int, Ge(0), Le(12)] = 2
    """Most clauses between the first clause and the ending; there are 12 to choose from."""
    num_train: Annotated[int, Ge(1)] = field(default=60_000, kw_only=True)
    num_valid: Annotated[int, Ge(1)] = field(default=2_000, kw_only=True)


class Stories(SyntheticCorpus[StoriesConfig]):
    """Stories with a known referent: `probes()` yields each with its correct ending and that of the other noun.

    >>> probe = Stories(StoriesConfig(max_fillers=0)).probe(1)
    >>> probe.prompt
    'My bus carried the rabbit and it'
    >>> probe.right, probe.wrong, probe.referent
    (' drove on to the next town.', ' shook the water from its fur.', 'bus')
    """

    name = "stories"
    description = "short stories that test pronoun resolution: only the referent of a pronoun decides the ending"
    suggested_settings = MappingProxyType(
        {"sample_unit": "documents", "seq_len": 64, "seq_len_warmup": None, "batch_size": 48}
    )
    """A story is short and complete: nothing before it helps to predict it."""

    def __init__(self, options: StoriesConfig, *, seed: int = 0) -> None:
        super().__init__(options, seed=seed)
        self._classes_by_topic: dict[str, list[str]] = {"things": [], "people": []}
        for name, kind in story_words().noun_classes.items():
            self._classes_by_topic["things" if kind.pronouns == ("it",) else "people"].append(name)
        if options.topic != "all":
            self._classes_by_topic = {options.topic: self._classes_by_topic[options.topic]}

    def draw(self, rng: Random) -> tuple[str, Probe]:
        """Draw two nouns, a clause that selects one of them, words in between, and the ending of that noun."""
        first, second, story_clause = self._draw_clause(rng)
        kinds = story_words().noun_classes[first], story_words().noun_classes[second]
        nouns = rng.choice(kinds[0].nouns), rng.choice(kinds[1].nouns)
        endings = [f" {rng.choice(kind.endings)}." for kind in kinds]
        pronoun = rng.choice(kinds[0].pronouns)
        clause = story_clause.template.replace("{1}", _noun_phrase(nouns[0], rng))
        clause = clause.replace("{2}", _noun_phrase(nouns[1], rng))
        fillers = rng.sample(story_words().fillers, rng.randint(0, self.options.max_fillers))
        prompt = " ".join([clause[0].upper() + clause[1:], *fillers, rng.choice(story_words().closings), pronoun])
        referent, other = story_clause.referent - 1, 2 - story_clause.referent
        answers = endings[referent], endings[other], nouns[referent], nouns[other]
        probe = Probe(prompt, *answers, pronoun, (first, second)[referent])
        return f"{story_clause.template}|{nouns[0]}|{nouns[1]}", probe

    def _draw_clause(self, rng: Random) -> tuple[str, str, StoryClause]:
        topic = rng.choices(list(self._classes_by_topic), [len(names) for names in self._classes_by_topic.values()])[0]
        if topic == "things" and rng.random() < _SCENE_PROB:
            scene = rng.choice(story_words().clause_groups)
            return *scene.classes, rng.choice(scene.clauses)
        first, second = rng.sample(self._classes_by_topic[topic], 2)
        return first, second, rng.choice(story_words().clauses)

    def notes(self) -> Mapping[str, str]:
        """Return the vocabulary sizes and the split rule."""
        kinds = [story_words().noun_classes[name] for names in self._classes_by_topic.values() for name in names]
        nouns, endings = sum(len(kind.nouns) for kind in kinds), sum(len(kind.endings) for kind in kinds)
        clauses = len(story_words().clauses)
        return {
            "vocabulary": f"{len(kinds)} classes, {nouns} nouns, {endings} endings, {clauses} clauses",
            "validation split": "a tenth of all combinations of a clause and two nouns",
            "seed": str(self.seed),
        }


def _noun_phrase(noun: str, rng: Random) -> str:
    """Return the noun with an article and sometimes an adjective, neither of which depends on its role."""
    words = [rng.choice(story_words().adjectives), noun] if rng.random() < _ADJECTIVE_PROB else [noun]
    article = rng.choice(story_words().articles)
    if article == "a" and words[0][0] in "aeiou":
        article = "an"
    return " ".join([article, *words])
