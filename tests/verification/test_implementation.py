"""Examination of attention code: every mistake is named, correct code passes, conventions are reported."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from peasy.errors import InvalidInput, UsageError
from peasy.verification.implementation import examine as examination
from peasy.verification.implementation.call_binding import parse_call
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.target import LocalTarget

from .specimen import right, wrong


def diagnose(target, call=None, **kwargs):
    return examine(LocalTarget(target), binding=parse_call(call) if call else None, **kwargs)


@pytest.mark.parametrize(("target", "name"), wrong.WRONG, ids=lambda value: getattr(value, "__name__", ""))
def test_mistakes_are_named(target, name):
    diagnosis = diagnose(target)
    assert diagnosis.mistakes == (name,)
    assert diagnosis.explained
    assert not diagnosis.passed
    (finding,) = [item for item in diagnosis.findings if item.name == name]
    assert finding.fix
    assert finding.formula
    assert finding.difference is None or finding.difference.actual != pytest.approx(
        finding.difference.expected, abs=1e-5
    )


@pytest.mark.parametrize("target", right.RIGHT, ids=lambda value: value.__name__)
def test_correct_code_passes(target):
    diagnosis = diagnose(target)
    assert diagnosis.mistakes == ()
    assert diagnosis.passed
    assert diagnosis.conventions


@pytest.mark.parametrize(
    ("target", "convention"),
    [
        (right.torch_fused, "mask: True = may attend"),
        (right.true_is_masked, "mask: True = masked"),
        (right.additive_mask, "added to the scores"),
        (right.ones_attend, "= may attend"),
        (right.with_einsum, "heads inside"),
        (right.grouped, "grouped-query attention"),
        (right.numpy_loops, "one sequence, one head"),
        (torch.nn.MultiheadAttention, "time first"),
        (torch.nn.MultiheadAttention(24, 4, batch_first=True), "batch first"),
        (right.FromScratch, "always causal"),
        (right.Cached, "rotary positions, by halves"),
        (right.Grouped, "4 heads, 2 key/value heads"),
        (right.TimeFirst, "padding: True = masked"),
    ],
)
def test_conventions_are_reported(target, convention):
    assert any(convention in text for text in diagnose(target).conventions)


def test_nan_on_empty_rows_is_a_caution():
    diagnosis = diagnose(right.true_is_masked)
    assert diagnosis.cautions == ("NaN on fully masked rows",)
    assert diagnosis.passed


def test_two_mistakes_are_both_named():
    assert set(diagnose(wrong.dropout_on_and_no_scale).mistakes) == {"dropout left on", "no scale"}

    def attention(q, k, v):
        return torch.softmax(q @ v.transpose(-2, -1), dim=-2) @ k / 1.0

    def two(q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1), dim=-2) @ v

    assert set(diagnose(two).mistakes) == {"scale by d_k", "softmax over queries"}
    assert not diagnose(attention).passed


def test_unknown_mistake_fails_without_a_name():
    def attention(q, k, v):
        return torch.softmax((q @ k.transpose(-2, -1)) ** 3, dim=-1) @ v

    diagnosis = diagnose(attention)
    assert (diagnosis.passed, diagnosis.explained, diagnosis.mistakes) == (False, False, ())
    assert diagnosis.difference is not None


def test_mistake_missing_from_the_catalogue_is_not_named(monkeypatch):
    """Inverse: names come from variants that reproduce the outputs, not from the specimens."""
    remaining = tuple(mistake for mistake in examination.MISTAKES if mistake.name != "softmax over queries")
    monkeypatch.setattr(examination, "MISTAKES", remaining)
    diagnosis = diagnose(wrong.softmax_over_queries)
    assert (diagnosis.mistakes, diagnosis.explained) == ((), False)


def test_likely_line_is_quoted():
    (finding,) = diagnose(wrong.softmax_over_queries).findings
    assert finding.code == "return torch.softmax(scores, dim=-2) @ v"
    lines = Path(wrong.__file__).read_text(encoding="utf-8").splitlines()
    assert lines[finding.line - 1].strip() == finding.code


def strange(first, second, third, hide=None):
    scores = first @ second.swapaxes(-1, -2) / math.sqrt(first.shape[-1])
    scores = scores if hide is None else np.where(hide, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ third


def test_unknown_parameter_names_need_a_call():
    with pytest.raises(InvalidInput, match='needs "first"') as error:
        diagnose(strange)
    assert '--call "strange(' in error.value.hint
    diagnosis = diagnose(strange, "strange(q, k, v, hide=mask)")
    assert diagnosis.passed
    assert any("True = masked" in text for text in diagnosis.conventions)


def test_constructor_call_can_be_given():
    diagnosis = diagnose(wrong.SplitByReshape, "SplitByReshape(16, 2)(x)")
    assert diagnosis.mistakes == ("heads split by a wrong reshape",)
    assert "2 heads" in diagnosis.conventions


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("attention(q, k", "cannot be parsed"),
        ("attention", "not a call"),
        ("attention(q, k, w)", '"w" in --call'),
        ("attention(q, k, [x for x in y])", "neither a known word"),
    ],
)
def test_invalid_call(call, message):
    with pytest.raises(UsageError, match=message):
        parse_call(call)


def test_error_of_the_target_is_reported():
    def attention(q, k, v):
        raise RuntimeError("not today")

    with pytest.raises(InvalidInput, match="not today"):
        diagnose(attention)


def test_other_objects_are_refused():
    with pytest.raises(InvalidInput, match="cannot be called"):
        diagnose(3)
    with pytest.raises(InvalidInput, match="does not look like attention"):
        diagnose(lambda: 1)


def test_dependence_test_without_known_weight_names():
    class Ahead(right.Odd):
        def forward(self, x):
            visible = torch.ones(x.size(1), x.size(1), dtype=torch.bool).tril(1)
            scores = self.alpha(x) @ self.beta(x).transpose(1, 2) / math.sqrt(x.size(-1))
            return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ self.gamma(x)

    assert diagnose(Ahead).mistakes == diagnose(Ahead(10)).mistakes == ("causal mask off by one (future)",)
    assert diagnose(right.Odd).notes


@pytest.mark.parametrize("seed", [1, 7, 23])
def test_other_seeds_give_the_same_diagnosis(seed):
    assert diagnose(right.grouped, seed=seed).passed
    assert diagnose(wrong.mask_after_softmax, seed=seed).mistakes == ("mask after softmax",)
