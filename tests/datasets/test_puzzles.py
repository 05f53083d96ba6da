"""`copy` and `recall`: the answer is at the chosen distance."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.datasets import open_corpus


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 60), st.integers(0, 9))
def test_copy_distance(length, seed):
    probe = open_corpus("copy", length=length, seed=seed).probe(3)
    words = probe.text.split()
    assert len(words) == 2 * length + 1
    assert all(words[n] == words[n - length - 1] for n in range(length + 1, len(words)))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 12), st.integers(0, 40), st.integers(0, 9))
def test_recall_distance(pairs, more, number):
    distance = 2 * pairs + 1 + more
    probe = open_corpus("recall", distance=distance, num_pairs=pairs).probe(number, "valid")
    words = probe.text.split()
    key, value = words[-2], words[-1]
    assert words[-1 - distance] == value
    assert words[-2 - distance] == key == probe.referent
    assert words.count(key) == 2
    value_of = dict(zip(words[: 2 * pairs : 2], words[1 : 2 * pairs : 2], strict=True))
    assert value_of[key] == probe.right.strip()
    assert value_of[probe.other] == probe.wrong.strip()


@pytest.mark.parametrize("name", ["copy", "recall"])
def test_probes_are_the_documents(name):
    corpus = open_corpus(name, num_train=20, num_valid=20)
    assert [probe.text for probe in corpus.probes("valid")] == list(corpus.documents("valid"))
    assert corpus.probe(10**9).text  # unlimited
