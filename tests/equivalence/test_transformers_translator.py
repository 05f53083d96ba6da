"""Equal to transformers on tiny encoder-decoders: logits, hidden states, all three kinds of attention weights."""

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
    captured = {}
    tap = Tap(lambda a: captured.__setitem__((*a.path, a.step), a.array), steps=("weights", "residual", "final"))
    with torch.no_grad():
        logits = translator.ours(target, source=source, tap=tap)
    torch.testing.assert_close(logits, expected.logits, **CLOSE)
    for stack, hidden_states, weights in (
        ("encoder", expected.encoder_hidden_states, expected.encoder_attentions),
        ("decoder", expected.decoder_hidden_states, expected.decoder_attentions),
    ):
        for layer, expected_weights in enumerate(weights):
            torch.testing.assert_close(captured[stack, layer, "stream", "residual"], hidden_states[layer], **CLOSE)
            torch.testing.assert_close(captured[stack, layer, "attention", "weights"], expected_weights, **CLOSE)
        torch.testing.assert_close(
            captured[stack, len(weights), "stream", "final"], hidden_states[len(weights)], **CLOSE
        )
    for layer, expected_weights in enumerate(expected.cross_attentions):
        torch.testing.assert_close(captured["decoder", layer, "cross_attention", "weights"], expected_weights, **CLOSE)


def test_padding_on_the_right(translator):
    source, target = some_ids(3, 12), some_ids(3, 8)
    source_mask, target_mask = right_padding(12, 7, 3), right_padding(5, 8, 2)
    with torch.no_grad():
        expected = translator.theirs(
            input_ids=source,
            attention_mask=source_mask.long(),
            decoder_input_ids=target,
            decoder_attention_mask=target_mask.long(),
        ).logits
        logits = translator.ours(target, padding_mask=target_mask, source=source, source_padding_mask=source_mask)
    torch.testing.assert_close(logits[target_mask], expected[target_mask], **CLOSE)


def test_left_padding_does_not_change_logits(translator):
    """transformers counts padding in positions here, so the reference is the sequence without padding."""
    source, target = some_ids(1, 9), some_ids(1, 6)
    with torch.no_grad():
        expected = translator.theirs(input_ids=source, decoder_input_ids=target).logits
        filler = torch.full((1, 4), 7)
        mask = torch.arange(13)[None] >= 4
        logits = translator.ours(
            torch.cat([filler, target], 1),
            padding_mask=mask[:, :10],
            source=torch.cat([filler, source], 1),
            source_padding_mask=mask,
        )
    torch.testing.assert_close(logits[:, 4:], expected, **CLOSE)


@pytest.mark.parametrize("pieces", [[8], [1] * 8, [3, 4, 1]])
def test_chunks_with_a_cache(translator, pieces):
    source, target = some_ids(2, 10), some_ids(2, 8)
    source_mask = right_padding(10, 6)
    with torch.no_grad():
        expected = translator.theirs(
            input_ids=source, attention_mask=source_mask.long(), decoder_input_ids=target
        ).logits
        cache = translator.ours.new_state(source=source, source_padding_mask=source_mask)
        logits = [translator.ours(piece, cache=cache) for piece in target.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(logits, dim=1), expected, **CLOSE)
