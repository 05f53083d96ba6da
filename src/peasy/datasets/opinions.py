"""Synthetic sentiment corpus `opinions`, labelled by topic and sentiment.

"Pizza is great", "My phone broke, great": words of praise occur in the same contexts, so that their vectors become
similar; each of them also follows bad news, where only the rest of the sentence shows the sentiment.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Ge

from peasy import config
from peasy.datasets.corpus import Corpus, LabelledText, SyntheticConfig, is_validation
from peasy.parameters import FrozenSettings

_IRONY_PROB = 0.5
Topic = Literal["all", "food", "phone", "film", "hotel", "journey", "book", "weather", "music"]


class _OpinionTopic(FrozenSettings):
    """Words of one topic: things, and good and bad news about them; `owners` if the general ones do not fit."""

    things: tuple[str, ...]
    good: tuple[str, ...]
    bad: tuple[str, ...]
    owners: tuple[str, ...] = ()


class _OpinionWords(FrozenSettings):
    """Word lists and sentence templates of the corpus."""

    owners: tuple[str, ...]
    judgements: tuple[str, ...]
    reactions: tuple[str, ...]
    praise: tuple[str, ...]
    blame: tuple[str, ...]
    topics: dict[str, _OpinionTopic]


@cache
def opinion_words() -> _OpinionWords:
    """Return the word lists, read once."""
    return config.read_file(_OpinionWords, Path(__file__).with_suffix(".toml"))


class OpinionsConfig(SyntheticConfig):
    """Options of `opinions`."""

    topic: Topic = "all"
    """Topic of all texts, or all topics."""
    max_sentences: Annotated[int, Ge(1)] = 3
    """Most sentences in a text, all with the same sentiment."""
    num_train: Annotated[int, Ge(1)] = field(default=30_000, kw_only=True)


class Opinions(Corpus):
    """Labelled texts, each a pure function of (seed, split, number); "food: good" is a label.

    >>> Opinions(OpinionsConfig()).text(8)
    LabelledText(text='Our keyboard started in a second, just fantastic.', label='phone: good')
    """

    kind = "labelled"
    name = "opinions"
    description = "short opinions about things, labelled by topic and sentiment"
    licence = "made by peasy (Apache-2.0)"
    suggested_settings = MappingProxyType({"seq_len": 64})

    def __init__(self, options: OpinionsConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.options, self.seed = options, seed
        self._topics = list(opinion_words().topics) if options.topic == "all" else [options.topic]

    def text(self, number: int, split: str = "train") -> LabelledText:
        """Return the text with this number, from 0 on."""
        rng = Random(f"{self.name}/{self.seed}/{self._check_split(split)}/{number}")
        topic, likes = rng.choice(self._topics), rng.random() < 0.5
        field = opinion_words().topics[topic]
        thing, owner = rng.choice(field.things), rng.choice(field.owners or opinion_words().owners)
        count = rng.randint(1, self.options.max_sentences)
        sentences = [_sentence(rng, field, f"{owner} {thing}", likes, split == "valid") for _ in range(count)]
        return LabelledText(" ".join(sentences), f"{topic}: {'good' if likes else 'bad'}")

    def read(self, split: str) -> Iterator[LabelledText]:
        count = self.options.num_train if split == "train" else self.options.num_valid
        return (self.text(number, split) for number in range(count))

    def notes(self) -> Mapping[str, str]:
        """Return the vocabulary sizes and the split rule."""
        words = opinion_words()
        things = sum(len(words.topics[name].things) for name in self._topics)
        judgements = f"{len(words.praise)} words of praise, {len(words.blame)} of blame"
        return {
            "vocabulary": f"{len(self._topics)} topics, {things} things, {judgements}",
            "validation split": "a tenth of all combinations of a thing and a statement",
            "seed": str(self.seed),
        }


def _sentence(rng: Random, topic: _OpinionTopic, subject: str, positive: bool, validation: bool) -> str:
    """Draw a sentence of the right split: a tenth of all combinations of thing and statement is for validation."""
    while True:
        sentence, statement = _draw(rng, topic, subject, positive)
        if is_validation(f"{subject.split(' ')[1]}|{statement}") == validation:
            return f"{sentence[0].upper()}{sentence[1:]}."


def _draw(rng: Random, topic: _OpinionTopic, subject: str, positive: bool) -> tuple[str, str]:
    """Return a judgement, or news with a comment; after bad news the comment is ironic praise half of the time."""
    words = opinion_words()
    if rng.random() < 0.5:
        template, word = rng.choice(words.judgements), rng.choice(words.praise if positive else words.blame)
        return template.format(thing=subject, word=word), template + word
    news = rng.choice(topic.good if positive else topic.bad)
    word = rng.choice(words.praise if positive or rng.random() < _IRONY_PROB else words.blame)
    return rng.choice(words.reactions).format(news=f"{subject} {news}", word=word), news + word
