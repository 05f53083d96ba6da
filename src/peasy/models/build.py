"""Builds a model from its config, with weights initialised from a seed or on the meta device."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from peasy.errors import InvalidInput
from peasy.models import config as kinds
from peasy.models.baselines import ConvolutionModel, NGramModel, RecurrentModel, Word2VecModel
from peasy.models.encoder import Encoder
from peasy.models.protocol import Model
from peasy.models.rnn_translator import RecurrentTranslator
from peasy.models.transformer import Decoder, EncoderDecoder
from peasy.nn.block import Block
from peasy.nn.lm_head import LMHead
from peasy.nn.stack import Stack

MODEL_CLASSES: dict[type, type[Model]] = {
    kinds.DecoderConfig: Decoder,
    kinds.EncoderConfig: Encoder,
    kinds.EncoderDecoderConfig: EncoderDecoder,
    kinds.RecurrentConfig: RecurrentModel,
    kinds.ConvolutionConfig: ConvolutionModel,
    kinds.NGramConfig: NGramModel,
    kinds.RecurrentTranslatorConfig: RecurrentTranslator,
    kinds.Word2VecConfig: Word2VecModel,
}


def build(config: kinds.ModelConfig, *, seed: int | None = 0) -> Model:
    """Build a model with weights initialised from `seed`; None = on the meta device, to be filled from a file.

    >>> from peasy.models.preset import preset
    >>> build(preset("gpt2"), seed=None).count_parameters()
    124439808
    """
    model_class = MODEL_CLASSES[type(config)]
    with torch.device("meta"), _SkipInit():
        model = model_class(config)
    if seed is not None:
        model.to_empty(device="cpu")
        _init_weights(model, seed)
    return model.eval()


def build_on_meta(config: kinds.ModelConfig, where: str) -> Model:
    """Build the model on the meta device; impossible sizes raise an error that names `where`."""
    try:
        return build(config, seed=None)
    except (RuntimeError, OverflowError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInput(f"{where}: no model can be built with these sizes: {reason}") from None


class _SkipInit(TorchFunctionMode):
    """Skips torch's weight initialisation: needless on the meta device, and it would import torch's compiler (2 s)."""

    def __torch_function__(
        self, function: Callable[..., object], types: object, args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:  # fmt: skip
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else (kwargs or {})["tensor"]
        return function(*args, **kwargs or {})


def _init_weights(model: nn.Module, seed: int) -> None:
    """Initialise all weights from `seed`, in the order of the modules.

    Linear layers are normal with standard deviation 1/sqrt(fan_in), embeddings with 0.02 (tied heads use them too)
    or, in recurrent models, where no norm rescales them, 0.3; norms are 1, biases 0. Output projections into the
    residual stream are scaled down with their number.
    """
    generator = torch.Generator().manual_seed(seed)
    is_recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    with torch.no_grad():
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                if isinstance(module, (nn.LayerNorm, nn.RMSNorm)):
                    weight.fill_(0.0 if name.endswith("bias") or getattr(module, "unit_offset", False) else 1.0)
                elif isinstance(module, nn.RNNBase):
                    bound = module.hidden_size**-0.5
                    weight.uniform_(-bound, bound, generator=generator)
                elif isinstance(module, nn.Embedding):
                    weight.normal_(0, 0.3 if is_recurrent else 0.02, generator=generator)
                elif weight.ndim == 1 and name.endswith(("bias", "sinks")):
                    weight.zero_()
                else:
                    has_rows = isinstance(module, (nn.Linear, nn.Conv1d, LMHead))
                    fan_in = weight[0].numel() if has_rows else weight.shape[0]
                    weight.normal_(0, fan_in**-0.5, generator=generator)
        for stack in model.modules():
            if isinstance(stack, Stack):
                blocks = [block for block in stack.blocks if isinstance(block, Block)]
                projections = [linear for block in blocks for linear in block.output_projections()]
                for linear in projections:
                    linear.weight.mul_(len(projections) ** -0.5)
