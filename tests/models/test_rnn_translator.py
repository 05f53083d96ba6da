"""The RNN translator learns to reverse a sequence, and its attention shows it."""

import torch

from peasy.models.build import build
from peasy.models.config import RecurrentTranslatorConfig, SpecialTokensConfig
from peasy.nn.tap import Tap


def test_learns_to_reverse_four_letters():
    """A task that needs attention: output token k is input token k from the end."""
    model = build(
        RecurrentTranslatorConfig(12, 32, special_tokens=SpecialTokensConfig(decoder_start=0)), seed=1
    ).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(250):
        source = torch.randint(1, 12, (48, 4), generator=generator)
        target = source.flip(1)
        decoder_ids = torch.cat([torch.zeros(48, 1, dtype=torch.int64), target[:, :-1]], dim=1)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(decoder_ids, source=source).flatten(0, 1), target.flatten())
        loss.backward()
        optimizer.step()
    model.eval()
    source = torch.randint(1, 12, (200, 4), generator=generator)
    decoder_ids = torch.cat([torch.zeros(200, 1, dtype=torch.int64), source.flip(1)[:, :-1]], dim=1)
    captured = []
    with torch.inference_mode():
        logits = model(decoder_ids, source=source, tap=Tap(captured.append))
    assert (logits.argmax(-1) == source.flip(1)).float().mean() > 0.9
    attended = captured[0].array[:, 0].mean(0).argmax(-1)
    assert attended[0] > attended[-1]
