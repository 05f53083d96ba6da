"""Classification head: from hidden states to one score per label."""

from torch import Tensor, nn

from peasy.nn import config as nn_config
from peasy.nn.feedforward import ACTIVATIONS
from peasy.nn.functional import make_norm


class Classifier(nn.Module):
    """Linear layer to the labels, of a text's vector or of each token's; a linear layer with activation may precede."""

    def __init__(self, d_model: int, settings: nn_config.ClassifierConfig, norm: nn_config.NormConfig) -> None:
        super().__init__()
        self.settings = settings
        self.activation = ACTIVATIONS[settings.transform] if settings.transform else None
        self.transform = nn.Linear(d_model, d_model, bias=settings.transform_bias) if settings.transform else None
        self.norm = make_norm(norm, d_model) if settings.transform_norm else None
        self.output = nn.Linear(d_model, len(settings.labels), bias=settings.bias)

    def summary(self) -> str:
        """Return a one-line summary."""
        return f"{len(self.settings.labels)} labels for each {self.settings.level}"

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits `[..., labels]` of `[..., d_model]`."""
        if self.transform is not None and self.activation is not None:
            x = self.activation(self.transform(x))
        return self.output(x if self.norm is None else self.norm(x))
