"""Equal to transformers on tiny random decoders: logits, residual stream of every layer, weights of every head."""

import pytest
import torch

from peasy.nn.tap import Tap

CLOSE = {"atol": 1e-4, "rtol": 0}


def some_ids(rows: int, length: int, vocabulary: int = 61) -> torch.Tensor:
    return torch.randint(2, vocabulary - 2, (rows, length), generator=torch.Generator().manual_seed(length))


def capture(model, ids, **options):
    captured = {}
    tap = Tap(lambda a: captured.__setitem__((*a.path, a.step), a.array), steps=("weights", "residual", "final"))
    with torch.no_grad():
        logits = model(ids, tap=tap, **options)
    return logits, captured


def their_logits(theirs, out):
    return out.logits if "logits" in out else out.last_hidden_state @ theirs.get_input_embeddings().weight.T


def test_logits_streams_and_weights(decoder):
    ids = some_ids(3, 13)
    with torch.no_grad():
        expected = decoder.theirs(ids, output_hidden_states=True, output_attentions=True)
    logits, captured = capture(decoder.ours, ids)
    torch.testing.assert_close(logits, their_logits(decoder.theirs, expected), **CLOSE)
    layers = len(expected.attentions)
    for layer in range(layers):
        torch.testing.assert_close(
            captured["decoder", layer, "stream", "residual"], expected.hidden_states[layer], **CLOSE
        )
        torch.testing.assert_close(
            captured["decoder", layer, "attention", "weights"], expected.attentions[layer], **CLOSE
        )
    torch.testing.assert_close(captured["decoder", layers, "stream", "final"], expected.hidden_states[layers], **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side(decoder, side):
    ids, mask = some_ids(3, 11), torch.ones(3, 11, dtype=torch.bool)
    for row, missing in enumerate((0, 3, 6)):
        if missing:
            mask[row, slice(0, missing) if side == "left" else slice(-missing, None)] = False
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        expected = decoder.theirs(ids, attention_mask=mask.long(), position_ids=positions)
        logits = decoder.ours(ids, padding_mask=mask)
    torch.testing.assert_close(logits[mask], their_logits(decoder.theirs, expected)[mask], **CLOSE)


def test_chunks_with_a_cache(decoder):
    ids = some_ids(2, 12)
    with torch.no_grad():
        expected = their_logits(decoder.theirs, decoder.theirs(ids))
        cache = decoder.ours.new_state()
        pieces = [decoder.ours(piece, cache=cache) for piece in ids.split([5, 1, 4, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected, **CLOSE)
