"""LayerNorm and RMSNorm in named steps."""

from typing import Annotated

from annotated_types import Ge

from peasy.errors import InvalidInput
from peasy.formula.arrays import check_axes, format_shape, to_common_dtype
from peasy.formula.step import D_MODEL, TIME, Array, FormulaStep, Steps

_X = FormulaStep("x", "x", "The input vectors, one row each.", (TIME, D_MODEL))
_LAYER_NORM = (
    _X,
    FormulaStep("mean", r"\mu = \frac{1}{d} \sum_i x_i", "The mean of each vector.", (TIME,)),
    FormulaStep("variance", r"\sigma^2 = \frac{1}{d} \sum_i (x_i - \mu)^2",
                "The mean squared deviation from the mean of each vector.", (TIME,)),
    FormulaStep("normalised", r"\hat{x} = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}",
                "Each vector has mean 0 and variance 1.", (TIME, D_MODEL)),
)  # fmt: skip
_RMS_NORM = (
    _X,
    FormulaStep("mean_square", r"\frac{1}{d} \sum_i x_i^2", "The mean square of each vector.", (TIME,)),
    FormulaStep("normalised", r"\hat{x} = \frac{x}{\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}}",
                "Each vector is divided by its root mean square; the mean is not subtracted.", (TIME, D_MODEL)),
)  # fmt: skip


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, *, eps: Annotated[float, Ge(0)] = 1e-5
) -> Steps:
    """LayerNorm: mean 0 and variance 1, then weight and bias. Steps: x, mean, variance, normalised, output.

    >>> layer_norm([[1., 3.]], eps=0.).normalised
    array([[-1.,  1.]])
    """
    xp, (x, weight, bias) = to_common_dtype(x=x, weight=weight, bias=bias)
    check_axes(x=x)
    mean = xp.mean(x, axis=-1)
    centred = x - mean[..., None]
    variance = xp.mean(centred * centred, axis=-1)
    normalised = centred / xp.sqrt(variance + eps)[..., None]
    arrays = (x, mean, variance, normalised)
    return Steps(*zip(_LAYER_NORM, arrays, strict=True), _output(normalised, weight, bias))


def rms_norm(x: Array, weight: Array | None = None, *, eps: Annotated[float, Ge(0)] = 1e-6) -> Steps:
    """RMSNorm: divide by the root mean square, then weight. Steps: x, mean_square, normalised, output.

    >>> rms_norm([[3., 4.]], eps=0.).mean_square
    array([12.5])
    """
    xp, (x, weight) = to_common_dtype(x=x, weight=weight)
    check_axes(x=x)
    mean_square = xp.mean(x * x, axis=-1)
    normalised = x / xp.sqrt(mean_square + eps)[..., None]
    return Steps(*zip(_RMS_NORM, (x, mean_square, normalised), strict=True), _output(normalised, weight, None))


def _output(normalised: Array, weight: Array | None, bias: Array | None) -> tuple[FormulaStep, Array]:
    output, tex = normalised, r"\hat{x}"
    for name, learned in {"weight": weight, "bias": bias}.items():
        if learned is not None and learned.shape != normalised.shape[-1:]:
            message = f"{name} is {format_shape(learned.shape)}, but the vectors have width {normalised.shape[-1]}."
            raise InvalidInput(message, hint="Pass one number for each dimension.")
    if weight is not None:
        output, tex = output * weight, rf"\gamma \odot {tex}"
    if bias is not None:
        output, tex = output + bias, rf"{tex} + \beta"
    description = "The learned weight and bias are applied." if tex != r"\hat{x}" else "No weight or bias is applied."
    return FormulaStep("output", tex, description, (TIME, D_MODEL)), output
