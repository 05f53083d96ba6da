"""LayerNorm and RMSNorm in named steps."""

from typing import Any

from peasy.errors import InvalidInput
from peasy.formula.arrays import format_shape, to_common_dtype
from peasy.formula.axes import D_MODEL, TIME
from peasy.formula.shapes import check_axes
from peasy.formula.step import Array, FormulaStep, Steps

X = FormulaStep("x", "x", "The input vectors, one row each.", (TIME, D_MODEL))


def layer_norm(x: Array, gain: Array | None = None, shift: Array | None = None, *, eps: float = 1e-5) -> Steps:
    """LayerNorm: mean 0 and variance 1, then gain and shift. Steps: x, mean, variance, normalised, output.

    >>> layer_norm([[1., 3.]], eps=0.).normalised
    array([[-1.,  1.]])
    """
    xp, (x, gain, shift) = to_common_dtype(x=x, gain=gain, shift=shift)
    check_axes(x=x)
    mean = xp.mean(x, axis=-1)
    centred = x - mean[..., None]
    variance = xp.mean(centred * centred, axis=-1)
    normalised = centred / xp.sqrt(variance + eps)[..., None]
    return Steps(
        (X, x),
        (FormulaStep("mean", r"\mu = \frac{1}{d} \sum_i x_i", "The mean of each vector.", (TIME,)), mean),
        (
            FormulaStep(
                "variance",
                r"\sigma^2 = \frac{1}{d} \sum_i (x_i - \mu)^2",
                "The mean squared deviation from the mean of each vector.",
                (TIME,),
            ),
            variance,
        ),
        (
            FormulaStep(
                "normalised",
                r"\hat{x} = \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}}",
                "Each vector has mean 0 and variance 1.",
                (TIME, D_MODEL),
            ),
            normalised,
        ),
        _output(xp, normalised, gain, shift),
    )


def rms_norm(x: Array, gain: Array | None = None, *, eps: float = 1e-6) -> Steps:
    """RMSNorm: divide by the root mean square, then gain. Steps: x, mean_square, normalised, output.

    >>> rms_norm([[3., 4.]], eps=0.).mean_square
    array([12.5])
    """
    xp, (x, gain) = to_common_dtype(x=x, gain=gain)
    check_axes(x=x)
    mean_square = xp.mean(x * x, axis=-1)
    normalised = x / xp.sqrt(mean_square + eps)[..., None]
    return Steps(
        (X, x),
        (
            FormulaStep("mean_square", r"\frac{1}{d} \sum_i x_i^2", "The mean square of each vector.", (TIME,)),
            mean_square,
        ),
        (
            FormulaStep(
                "normalised",
                r"\hat{x} = \frac{x}{\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}}",
                "Each vector is divided by its root mean square; the mean is not subtracted.",
                (TIME, D_MODEL),
            ),
            normalised,
        ),
        _output(xp, normalised, gain, None),
    )


def _output(xp: Any, normalised: Array, gain: Array | None, shift: Array | None) -> tuple[FormulaStep, Array]:
    output, tex = normalised, r"\hat{x}"
    for name, learned in {"gain": gain, "shift": shift}.items():
        if learned is not None and learned.shape != normalised.shape[-1:]:
            raise InvalidInput(
                f"{name} is {format_shape(learned.shape)}, but the vectors have width {normalised.shape[-1]}.",
                hint="Pass one number for each dimension.",
            )
    if gain is not None:
        output, tex = output * gain, rf"\gamma \odot {tex}"
    if shift is not None:
        output, tex = output + shift, rf"{tex} + \beta"
    says = "The learned gain and shift are applied." if tex != r"\hat{x}" else "No gain or shift is applied."
    return FormulaStep("output", tex, says, (TIME, D_MODEL)), output
