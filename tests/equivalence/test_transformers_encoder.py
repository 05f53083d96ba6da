"""Equal to transformers on tiny random encoders: vectors, masked-LM logits, every layer and head."""

import pytest
import torch
from tests.equivalence.conftest import CASES

from peasy.nn.tap import Tap

CLOSE = {"atol": 1e-4, "rtol": 0}


def some_ids(rows: int, length: int, vocabulary: int = 61) -> torch.Tensor:
    return torch.randint(2, vocabulary - 2, (rows, length), generator=torch.Generator().manual_seed(length))


def base(theirs):
    return getattr(theirs, theirs.base_model_prefix, theirs)


def padded(side: str, rows: int = 3, length: int = 11) -> torch.Tensor:
    mask = torch.ones(rows, length, dtype=torch.bool)
    for row, missing in enumerate((0, 2, 5)):
        if missing:
            mask[row, slice(0, missing) if side == "left" else slice(-missing, None)] = False
    return mask


def test_streams_and_weights(encoder):
    ids = some_ids(3, 13)
    segments = (torch.arange(13) > 6).long().expand(3, -1)
    if encoder.ours.config.embedding.segments < 2:
        segments = torch.zeros_like(segments)
    with torch.no_grad():
        expected = base(encoder.theirs)(ids, token_type_ids=segments, output_hidden_states=True, output_attentions=True)
    captured = {}
    tap = Tap(lambda a: captured.__setitem__((*a.path, a.step), a.array), steps=("weights", "residual", "final"))
    with torch.no_grad():
        hidden = encoder.ours.hidden(ids, segments=segments, tap=tap)
    torch.testing.assert_close(hidden, expected.last_hidden_state, **CLOSE)
    layers = len(expected.attentions)
    for layer in range(layers):
        torch.testing.assert_close(
            captured["encoder", layer, "stream", "residual"], expected.hidden_states[layer], **CLOSE
        )
        torch.testing.assert_close(
            captured["encoder", layer, "attention", "weights"], expected.attentions[layer], **CLOSE
        )
    torch.testing.assert_close(captured["encoder", layers, "stream", "final"], expected.hidden_states[layers], **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side(encoder, side):
    ids, mask = some_ids(3, 11), padded(side)
    offset = getattr(encoder.ours.config.position, "offset", 0)
    positions = (mask.cumsum(1) - 1).clamp(min=0) + offset
    with torch.no_grad():
        expected = base(encoder.theirs)(ids, attention_mask=mask.long(), position_ids=positions).last_hidden_state
        hidden = encoder.ours.hidden(ids, padding_mask=mask)
    torch.testing.assert_close(hidden[mask], expected[mask], **CLOSE)


def test_roberta_position_offset(case_of):
    case = case_of("roberta")
    ids, mask = some_ids(3, 11), padded("left")
    ids[~mask] = case.theirs.config.pad_token_id
    with torch.no_grad():
        expected = case.theirs(ids, attention_mask=mask.long()).last_hidden_state
        hidden = case.ours.hidden(ids, padding_mask=mask)
    torch.testing.assert_close(hidden[mask], expected[mask], **CLOSE)


@pytest.mark.parametrize(
    "name",
    [name for name in CASES["encoder"] if name.endswith(("masked", "untied", "pretraining")) or name == "camembert"],
)
def test_masked_lm_logits(case_of, name):
    case, ids = case_of(name), some_ids(2, 9)
    with torch.no_grad():
        out = case.theirs(ids)
        expected = out.logits if "logits" in out else out.prediction_logits
        torch.testing.assert_close(case.ours(ids), expected, **CLOSE)


@pytest.mark.parametrize("name", ["bert", "roberta", "bert-pretraining"])
def test_pooler(case_of, name):
    case, ids = case_of(name), some_ids(2, 9)
    assert case.ours.config.pooler
    with torch.no_grad():
        expected = base(case.theirs)(ids).pooler_output
        pooled = torch.tanh(case.ours.pooler(case.ours.hidden(ids)[:, 0]))
    torch.testing.assert_close(pooled, expected, **CLOSE)


def test_without_pooler(case_of):
    assert not case_of("bert-masked").ours.config.pooler
    assert case_of("bert").ours.config.lm_head is None
