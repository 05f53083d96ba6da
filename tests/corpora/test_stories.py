"""`stories`: only the word behind the pronoun decides, and the last words before the ending do not tell."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest

from peasy.corpora import open_corpus
from peasy.corpora import stories as module
from peasy.corpora.stories import Frame, world

ORDER = 5


class Backoff:
    """A 5-gram model by counting: the longest context that was seen decides, each step back costs 0.4."""

    def __init__(self, texts):
        self.rows = [Counter() for _ in range(ORDER + 1)]
        self.contexts = [Counter() for _ in range(ORDER + 1)]
        for text in texts:
            words = ["<s>"] * (ORDER - 1) + split(text)
            for at in range(ORDER - 1, len(words)):
                for n in range(1, ORDER + 1):
                    self.rows[n][tuple(words[at - n + 1 : at + 1])] += 1
                    self.contexts[n][tuple(words[at - n + 1 : at])] += 1

    def probability(self, context, word):
        for back, n in enumerate(range(ORDER, 0, -1)):
            before = tuple(context[len(context) - n + 1 :])
            if seen := self.rows[n][(*before, word)]:
                return 0.4**back * seen / self.contexts[n][before]
        return 1e-9

    def score(self, prompt, ending):
        words, product = ["<s>"] * (ORDER - 1) + split(prompt), 1.0
        for word in split(ending):
            product *= self.probability(words, word)
            words.append(word)
        return product


def split(text):
    return text.replace(".", " .").split()


def accuracy(corpus):
    model = Backoff(corpus.documents("train"))
    right = [model.score(p.prompt, p.right) > model.score(p.prompt, p.wrong) for p in corpus.probes("valid")]
    return sum(right) / len(right)


@pytest.fixture(scope="module")
def corpus():
    return open_corpus("stories", size=6000, held_out=2000)


def test_a_five_gram_can_only_guess(corpus):
    """Within 5 points of chance; the spread of 2,000 guesses alone is 1.1."""
    assert abs(accuracy(corpus) - 0.5) < 0.05


def test_a_five_gram_notices_when_the_last_words_tell(monkeypatch):
    """The inverse: were stories always about the noun that stands last, counting would find out."""
    told = [Frame(frame.says, 2) for frame in world().frames]
    short = module.World(**vars(world()) | {"frames": tuple(told), "closings": ("and",), "scenes": ()})
    monkeypatch.setattr(module, "world", lambda: short)
    monkeypatch.setattr(module, "_SCENES", 0.0)
    corpus = open_corpus("stories", size=6000, held_out=1000, fillers=0)
    assert accuracy(corpus) > 0.75


def test_the_order_of_mention_is_balanced(corpus):
    probes = list(corpus.probes("valid"))
    first = [p.prompt.index(f" {p.referent} ") < p.prompt.index(f" {p.other} ") for p in probes]
    assert abs(sum(first) / len(first) - 0.5) < 0.04


def test_each_class_is_meant_as_often_as_not(corpus):
    """Whichever two classes meet, either may be meant: knowing the nouns alone is no help."""
    meant, met = Counter(), Counter()
    for probe in (corpus.probe(n) for n in range(6000)):
        classes = {name for name, kind in world().classes.items() if {probe.referent, probe.other} & set(kind.nouns)}
        assert len(classes) == 2
        meant[probe.category] += 1
        met.update(classes)
    assert all(abs(meant[name] / met[name] - 0.5) < 0.1 for name in met)


def test_what_is_right_is_of_the_referent_and_what_is_wrong_of_the_other(corpus):
    for probe in corpus.probes("valid"):
        kinds = world().classes.values()
        owner = next(kind for kind in kinds if probe.right.strip(" .") in kind.endings)
        other = next(kind for kind in kinds if probe.wrong.strip(" .") in kind.endings)
        assert probe.referent in owner.nouns
        assert probe.other in other.nouns
        assert owner is not other
        assert probe.prompt.endswith(f" {probe.pronoun}")
        assert probe.pronoun in owner.pronouns
        assert probe.pronoun in other.pronouns


def test_the_frame_alone_says_who_is_meant(corpus):
    """Two roads: the referent that the generator names is the one a reader finds by the frames' own words."""
    frames = [*world().frames, *(frame for scene in world().scenes for frame in scene.frames)]
    for probe in list(corpus.probes("valid"))[:300]:
        nouns = sorted((probe.referent, probe.other), key=lambda noun: probe.prompt.index(f" {noun} "))
        found = {nouns[f.about - 1] for f in frames if fits(f.says, probe.prompt, nouns)}
        assert found == {probe.referent}


def fits(frame, prompt, nouns):
    said = split(prompt.lower())
    before, between, _ = (part.split() for part in frame.replace("{1}", "|").replace("{2}", "|").split("|"))
    first, second = said.index(nouns[0]), said.index(nouns[1])
    opening, middle = said[: first - 1], said[first + 1 : second - 1]
    return any(
        opening[: len(opening) - cut] == before and middle[: len(middle) - late] == between
        for cut in (0, 1)
        for late in (0, 1)
    )


def test_no_ending_and_no_noun_belongs_to_two_classes():
    for one, other in combinations(world().classes.values(), 2):
        assert not set(one.nouns) & set(other.nouns)
        assert not set(one.endings) & set(other.endings)


def test_frames_are_as_often_about_the_first_as_about_the_second():
    assert sum(frame.about == 1 for frame in world().frames) * 2 == len(world().frames)
    for scene in world().scenes:
        assert sorted(frame.about for frame in scene.frames) == [1, 2]
    met = Counter(name for scene in world().scenes for name in scene.classes)
    meant = Counter(scene.classes[frame.about - 1] for scene in world().scenes for frame in scene.frames)
    assert meant == met


def test_held_out_combinations_are_never_told(corpus):
    told, held = ({meaning_of(corpus, split, number) for number in range(400)} for split in ("train", "valid"))
    assert not told & held
    assert len(held) > 300


def meaning_of(corpus, split, number):
    """The frame and both nouns of a story, drawn again as the generator draws them."""
    rng, told = Random(f"{corpus.name}/{corpus.seed}/{split}/{number}"), corpus.probe(number, split)
    return next(meaning for meaning, probe in iter(lambda: corpus.draw(rng), None) if probe == told)


def test_the_story_of_the_pizza_is_one_of_them():
    """The sentence that everybody shows is in this language, with its twin."""
    says = {frame.says for scene in world().scenes for frame in scene.frames}
    assert {"{1} came out of {2}", "{1} baked {2}"} <= says
    assert "pizza" in world().classes["food"].nouns
    assert "tasted good" in world().classes["food"].endings
    assert "oven" in world().classes["cooker"].nouns
    assert "was switched off" in world().classes["cooker"].endings


@pytest.mark.parametrize("topic", ["things", "people"])
def test_topics_keep_to_their_classes(topic):
    corpus = open_corpus(f"stories:{topic}", held_out=200)
    assert {probe.pronoun for probe in corpus.probes()} == ({"it"} if topic == "things" else {"he", "she"})


def test_articles_fit_their_words(corpus):
    text = " ".join(corpus.documents("valid")).lower()
    assert " a oven " not in text
    assert " an old " in text
