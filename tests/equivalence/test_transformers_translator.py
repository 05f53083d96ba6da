"""Equal to transformers on tiny encoder-decoders: logits, residual streams, all three kinds of attention weights."""

import pytest
import torch

from peasy.nn.tap import Tap

CLOSE = {"atol": 1e-4, "rtol": 0}


def some_ids(rows: int, length: int, vocabulary: int = 60) -> torch.Tensor:
    return torch.randint(2, vocabulary - 2, (rows, length), generator=torch.Generator().manual_seed(length))


def right_padding(*lengths: int) -> torch.Tensor:
    return torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]


def test_logits_streams_and_weights(translator):
    source, target = some_ids(3, 13), some_ids(3, 9)
    with torch.no_grad():
        expected = translator.theirs(
            input_ids=source, decoder_input_ids=target, output_hidden_states=True, output_attentions=True
        )
    seen = {}
    tap = Tap(lambda it: seen.__setitem__((*it.path, it.step), it.array), steps=("weights", "residual", "final"))
    with torch.no_grad():
        scores = translator.ours(target, source=source, tap=tap)
    torch.testing.assert_close(scores, expected.logits, **CLOSE)
    for stack, streams, weights in (
        ("encoder", expected.encoder_hidden_states, expected.encoder_attentions),
        ("decoder", expected.decoder_hidden_states, expected.decoder_attentions),
    ):
        for layer, expected_weights in enumerate(weights):
            torch.testing.assert_close(seen[stack, layer, "stream", "residual"], streams[layer], **CLOSE)
            torch.testing.assert_close(seen[stack, layer, "attention", "weights"], expected_weights, **CLOSE)
        torch.testing.assert_close(seen[stack, len(weights), "stream", "final"], streams[len(weights)], **CLOSE)
    for layer, expected_weights in enumerate(expected.cross_attentions):
        torch.testing.assert_close(seen["decoder", layer, "cross_attention", "weights"], expected_weights, **CLOSE)


def test_padding_on_the_right(translator):
    source, target = some_ids(3, 12), some_ids(3, 8)
    source_real, target_real = right_padding(12, 7, 3), right_padding(5, 8, 2)
    with torch.no_grad():
        expected = translator.theirs(
            input_ids=source,
            attention_mask=source_real.long(),
            decoder_input_ids=target,
            decoder_attention_mask=target_real.long(),
        ).logits
        scores = translator.ours(target, padding_mask=target_real, source=source, source_padding_mask=source_real)
    torch.testing.assert_close(scores[target_real], expected[target_real], **CLOSE)


def test_left_padding_does_not_change_logits(translator):
    """transformers counts padding in positions here, so the reference is the sequence without padding."""
    source, target = some_ids(1, 9), some_ids(1, 6)
    with torch.no_grad():
        expected = translator.theirs(input_ids=source, decoder_input_ids=target).logits
        filler = torch.full((1, 4), 7)
        real = torch.arange(13)[None] >= 4
        scores = translator.ours(
            torch.cat([filler, target], 1),
            padding_mask=real[:, :10],
            source=torch.cat([filler, source], 1),
            source_padding_mask=real,
        )
    torch.testing.assert_close(scores[:, 4:], expected, **CLOSE)


@pytest.mark.parametrize("pieces", [[8], [1] * 8, [3, 4, 1]])
def test_chunks_with_a_cache(translator, pieces):
    source, target = some_ids(2, 10), some_ids(2, 8)
    source_real = right_padding(10, 6)
    with torch.no_grad():
        expected = translator.theirs(
            input_ids=source, attention_mask=source_real.long(), decoder_input_ids=target
        ).logits
        cache = translator.ours.new_state(batch=2, source=source, source_padding_mask=source_real)
        scores = [translator.ours(piece, cache=cache) for piece in target.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(scores, dim=1), expected, **CLOSE)
