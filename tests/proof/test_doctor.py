"""Every mistake by its name; nothing said against what is right; conventions named and never blamed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from peasy.errors import InvalidInput, UsageError
from peasy.proof.doctor import examine as examination
from peasy.proof.doctor.examine import examine
from peasy.proof.doctor.subject import Subject
from peasy.proof.doctor.way import parse_call

from .specimen import right, wrong


def doctor(thing, call=None, **how):
    return examine(Subject(thing), call=parse_call(call) if call else None, **how)


@pytest.mark.parametrize(("thing", "name"), wrong.WRONG, ids=lambda each: getattr(each, "__name__", ""))
def test_a_mistake_is_called_by_its_name(thing, name):
    found = doctor(thing)
    assert found.mistakes == (name,)
    assert found.explained
    assert not found.passed
    (finding,) = [each for each in found.findings if each.name == name]
    assert finding.fix
    assert finding.formula
    assert finding.difference is None or finding.difference.found != pytest.approx(finding.difference.right, abs=1e-5)


@pytest.mark.parametrize("thing", right.RIGHT, ids=lambda each: each.__name__)
def test_nothing_is_said_against_what_is_right(thing):
    found = doctor(thing)
    assert found.mistakes == ()
    assert found.passed
    assert found.conventions


@pytest.mark.parametrize(
    ("thing", "convention"),
    [
        (right.torch_fused, "mask: True = may look"),
        (right.true_is_hidden, "mask: True = hidden"),
        (right.additive_mask, "added to the scores"),
        (right.ones_are_seen, "= may look"),
        (right.with_einsum, "heads inside"),
        (right.grouped, "heads may share keys"),
        (right.numpy_loops, "one text, one head"),
        (torch.nn.MultiheadAttention, "time first"),
        (torch.nn.MultiheadAttention(24, 4, batch_first=True), "batch first"),
        (right.FromScratch, "only looks back"),
        (right.Cached, "rotary positions, by halves"),
        (right.Grouped, "4 heads sharing 2 key heads"),
        (right.TimeFirst, "padding: True = hidden"),
    ],
)
def test_conventions_are_named(thing, convention):
    assert any(convention in each for each in doctor(thing).conventions)


def test_nan_on_empty_rows_is_a_caution():
    found = doctor(right.true_is_hidden)
    assert found.cautions == ("NaN on fully masked rows",)
    assert found.passed


def test_two_mistakes_are_both_named():
    assert set(doctor(wrong.dropout_on_and_no_scale).mistakes) == {"dropout left on", "no scale"}

    def attention(q, k, v):
        return torch.softmax(q @ v.transpose(-2, -1), dim=-2) @ k / 1.0

    def two(q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1), dim=-2) @ v

    assert set(doctor(two).mistakes) == {"scale d_k instead of its root", "softmax over queries"}
    assert not doctor(attention).passed


def test_what_nobody_knows_is_said_to_be_wrong_all_the_same():
    def attention(q, k, v):
        return torch.softmax((q @ k.transpose(-2, -1)) ** 3, dim=-1) @ v

    found = doctor(attention)
    assert (found.passed, found.explained, found.mistakes) == (False, False, ())
    assert found.difference is not None


def test_without_the_mistake_in_the_catalogue_it_would_not_be_named(monkeypatch):
    """The inverse: names come from formulas that fit, not from the specimens."""
    left = tuple(each for each in examination.MISTAKES if each.name != "softmax over queries")
    monkeypatch.setattr(examination, "MISTAKES", left)
    found = doctor(wrong.softmax_over_queries)
    assert (found.mistakes, found.explained) == ((), False)


def test_the_line_that_does_it_is_quoted():
    (finding,) = doctor(wrong.softmax_over_queries).findings
    assert finding.code == "return torch.softmax(scores, dim=-2) @ v"
    lines = Path(wrong.__file__).read_text(encoding="utf-8").splitlines()
    assert lines[finding.line - 1].strip() == finding.code


def strange(first, second, third, hide=None):
    scores = first @ second.swapaxes(-1, -2) / math.sqrt(first.shape[-1])
    scores = scores if hide is None else np.where(hide, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ third


def test_names_that_say_nothing_need_a_call():
    with pytest.raises(InvalidInput, match='needs "first"') as error:
        doctor(strange)
    assert '--call "strange(' in error.value.hint
    found = doctor(strange, "strange(q, k, v, hide=mask)")
    assert found.passed
    assert any("True = hidden" in each for each in found.conventions)


def test_a_class_can_be_made_by_call():
    found = doctor(wrong.SplitByReshape, "SplitByReshape(16, 2)(x)")
    assert found.mistakes == ("heads split by a wrong reshape",)
    assert "2 heads" in found.conventions


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("attention(q, k", "cannot be read"),
        ("attention", "not a call"),
        ("attention(q, k, w)", '"w" in --call'),
        ("attention(q, k, [x for x in y])", "neither a word"),
    ],
)
def test_a_call_that_is_not_understood(call, says):
    with pytest.raises(UsageError, match=says):
        parse_call(call)


def test_what_fails_in_every_layout_is_told_with_its_error():
    def attention(q, k, v):
        raise RuntimeError("not today")

    with pytest.raises(InvalidInput, match="not today"):
        doctor(attention)


def test_what_is_no_attention_is_refused():
    with pytest.raises(InvalidInput, match="cannot be called"):
        doctor(3)
    with pytest.raises(InvalidInput, match="does not look like attention"):
        doctor(lambda: 1)


def test_properties_tell_where_names_do_not():
    class Ahead(right.Odd):
        def forward(self, x):
            seen = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(1)
            scores = self.alpha(x) @ self.beta(x).transpose(1, 2) / math.sqrt(x.size(-1))
            return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ self.gamma(x)

    assert doctor(Ahead).mistakes == doctor(Ahead(10)).mistakes == ("causal sees the next token",)
    assert doctor(right.Odd).notes


@pytest.mark.parametrize("seed", [1, 7, 23])
def test_other_numbers_say_the_same(seed):
    assert doctor(right.grouped, seed=seed).passed
    assert doctor(wrong.mask_after_softmax, seed=seed).mistakes == ("mask after softmax",)
