"""From settings to a model, with weights from a seed or without memory for weights to come."""

import torch
from torch import nn

from peasy.models import config as kinds
from peasy.models.decoder import Decoder
from peasy.models.encoder import Encoder
from peasy.models.encoder_decoder import EncoderDecoder
from peasy.models.protocol import Model

KINDS: dict[type, type[Model]] = {
    kinds.DecoderConfig: Decoder,
    kinds.EncoderConfig: Encoder,
    kinds.EncoderDecoderConfig: EncoderDecoder,
}


def build(config: kinds.Config, *, seed: int | None = 0) -> Model:
    """A model with weights drawn from `seed`; None = on no device ("meta"), to be filled from a file.

    >>> from peasy.models import preset
    >>> build(preset("gpt2"), seed=None).count_parameters()
    124439808
    """
    kind = KINDS[type(config)]
    with torch.device("meta"):
        model = kind(config)
    if seed is not None:
        model.to_empty(device="cpu")
        initialise(model, seed)
    return model.eval()


def initialise(model: nn.Module, seed: int) -> None:
    """Draw every weight from `seed`, module by module in order."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.02, generator=draw)
