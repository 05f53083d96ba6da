"""`stories`: only the referent of the pronoun decides the ending; the last words before it do not."""

from collections import Counter
from itertools import combinations
from random import Random

import pytest

from peasy.datasets import open_corpus
from peasy.datasets import stories as module
from peasy.datasets.stories import StoryClause, story_words

ORDER = 5


class Backoff:
    """5-gram model with stupid backoff (factor 0.4)."""

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
    return open_corpus("stories", num_train=6000, num_valid=2000)


def test_five_gram_model_is_at_chance(corpus):
    """Within 5 points of chance; the standard deviation of 2,000 guesses is 1.1."""
    assert abs(accuracy(corpus) - 0.5) < 0.05


def test_five_gram_model_detects_a_local_cue(monkeypatch):
    """The inverse: if the referent were always the last noun, a 5-gram model would find it."""
    clauses = [StoryClause(clause.template, 2) for clause in story_words().clauses]
    changes = {"clauses": tuple(clauses), "closings": ("and",), "clause_groups": ()}
    short = module.StoryWords(**vars(story_words()) | changes)
    monkeypatch.setattr(module, "story_words", lambda: short)
    monkeypatch.setattr(module, "_SCENE_PROB", 0.0)
    corpus = open_corpus("stories", num_train=6000, num_valid=1000, max_fillers=0)
    assert accuracy(corpus) > 0.75


def test_the_order_of_mention_is_balanced(corpus):
    probes = list(corpus.probes("valid"))
    first = [p.prompt.index(f" {p.referent} ") < p.prompt.index(f" {p.other} ") for p in probes]
    assert abs(sum(first) / len(first) - 0.5) < 0.04


def test_each_class_is_the_referent_half_the_time(corpus):
    """For any two classes, either may be the referent: the nouns alone do not decide."""
    meant, met = Counter(), Counter()
    for probe in (corpus.probe(n) for n in range(6000)):
        classes = {
            name for name, kind in story_words().noun_classes.items() if {probe.referent, probe.other} & set(kind.nouns)
        }
        assert len(classes) == 2
        meant[probe.category] += 1
        met.update(classes)
    assert all(abs(meant[name] / met[name] - 0.5) < 0.1 for name in met)


def test_endings_belong_to_referent_and_distractor(corpus):
    for probe in corpus.probes("valid"):
        kinds = story_words().noun_classes.values()
        owner = next(kind for kind in kinds if probe.right.strip(" .") in kind.endings)
        other = next(kind for kind in kinds if probe.wrong.strip(" .") in kind.endings)
        assert probe.referent in owner.nouns
        assert probe.other in other.nouns
        assert owner is not other
        assert probe.prompt.endswith(f" {probe.pronoun}")
        assert probe.pronoun in owner.pronouns
        assert probe.pronoun in other.pronouns


def test_clause_alone_determines_the_referent(corpus):
    """The generator's referent equals the one found by matching the clause templates."""
    clauses = [*story_words().clauses, *(clause for group in story_words().clause_groups for clause in group.clauses)]
    for probe in list(corpus.probes("valid"))[:300]:
        nouns = sorted((probe.referent, probe.other), key=lambda noun: probe.prompt.index(f" {noun} "))
        referents = {nouns[f.referent - 1] for f in clauses if fits(f.template, probe.prompt, nouns)}
        assert referents == {probe.referent}


def fits(clause, prompt, nouns):
    words = split(prompt.lower())
    before, between, _ = (part.split() for part in clause.replace("{1}", "|").replace("{2}", "|").split("|"))
    first, second = words.index(nouns[0]), words.index(nouns[1])
    opening, middle = words[: first - 1], words[first + 1 : second - 1]
    return any(
        opening[: len(opening) - cut] == before and middle[: len(middle) - late] == between
        for cut in (0, 1)
        for late in (0, 1)
    )


def test_classes_share_no_noun_or_ending():
    for one, other in combinations(story_words().noun_classes.values(), 2):
        assert not set(one.nouns) & set(other.nouns)
        assert not set(one.endings) & set(other.endings)


def test_clauses_are_balanced_between_nouns():
    assert sum(clause.referent == 1 for clause in story_words().clauses) * 2 == len(story_words().clauses)
    for group in story_words().clause_groups:
        assert sorted(clause.referent for clause in group.clauses) == [1, 2]
    met = Counter(name for group in story_words().clause_groups for name in group.classes)
    meant = Counter(
        group.classes[clause.referent - 1] for group in story_words().clause_groups for clause in group.clauses
    )
    assert meant == met


def test_splits_are_disjoint(corpus):
    train, valid = ({meaning_of(corpus, split, number) for number in range(400)} for split in ("train", "valid"))
    assert not train & valid
    assert len(valid) > 300


def meaning_of(corpus, split, number):
    """Content key of a story: clause and both nouns, drawn again as the generator draws them."""
    rng, wanted = Random(f"{corpus.name}/{corpus.seed}/{split}/{number}"), corpus.probe(number, split)
    return next(meaning for meaning, probe in iter(lambda: corpus.draw(rng), None) if probe == wanted)


def test_pizza_example_is_included():
    """The well-known example sentence and its counterpart can be generated."""
    templates = {clause.template for group in story_words().clause_groups for clause in group.clauses}
    assert {"{1} came out of {2}", "{1} baked {2}"} <= templates
    assert "pizza" in story_words().noun_classes["food"].nouns
    assert "tasted good" in story_words().noun_classes["food"].endings
    assert "oven" in story_words().noun_classes["cooker"].nouns
    assert "was switched off" in story_words().noun_classes["cooker"].endings


@pytest.mark.parametrize("topic", ["things", "people"])
def test_topic_limits_the_classes(topic):
    corpus = open_corpus(f"stories:{topic}", num_valid=200)
    assert {probe.pronoun for probe in corpus.probes()} == ({"it"} if topic == "things" else {"he", "she"})


def test_a_or_an(corpus):
    text = " ".join(corpus.documents("valid")).lower()
    assert " a oven " not in text
    assert " an old " in text
