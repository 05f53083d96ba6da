"""Functions of one number with their derivatives: ReLU, GELU (both forms), SiLU, sigmoid, exp, log, squares ..."""

import math
from collections.abc import Callable

from peasy.formula.step import Array, Namespace
from peasy.parameters import Record

_CUBIC = 0.044715


class ScalarFunction(Record):
    """Function y = f(x) of one number: value, derivative `slope(xp, x, y)`, TeX and text, in which $0 is x;
    in those of the derivative $1 is x and $2 is y."""

    name: str
    tex: str
    text: str
    value: Callable[[Namespace, Array], Array]
    slope: Callable[[Namespace, Array, Array], Array]
    slope_tex: str
    slope_text: str
    sentence: str

    def __reduce__(self) -> tuple[Callable[[str], "ScalarFunction"], tuple[str]]:
        return _find_function, (self.name,)  # functions are pickled by name


def _find_function(name: str) -> ScalarFunction:
    """Return a function by its name."""
    return FUNCTIONS[name]


def erf(xp: Namespace, x: Array) -> Array:
    """Return the error function of every number; array-API libraries without one use that of Python.

    >>> import numpy as np
    >>> erf(np, np.asarray([[0.5]])).round(4)
    array([[0.5205]])
    """
    if hasattr(xp, "erf"):
        return xp.erf(x)
    if hasattr(x, "detach"):
        return x.erf()
    flat = xp.reshape(x, (-1,))
    numbers = [math.erf(float(flat[index])) for index in range(flat.shape[0])]
    return xp.reshape(xp.asarray(numbers, dtype=x.dtype), x.shape)


def sigmoid(xp: Namespace, x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    return 1 / (1 + xp.exp(-x))


def _normal(xp: Namespace, x: Array) -> Array:
    """Return the share of the normal distribution below x."""
    return (1 + erf(xp, x * math.sqrt(0.5))) * 0.5


def _gelu_slope(xp: Namespace, x: Array) -> Array:
    return _normal(xp, x) + x * xp.exp(x * x * -0.5) / math.sqrt(2 * math.pi)


def _gelu_tanh(xp: Namespace, x: Array) -> Array:
    return xp.tanh((x + x * x * x * _CUBIC) * math.sqrt(2 / math.pi))


def _gelu_tanh_slope(xp: Namespace, x: Array) -> Array:
    tanh = _gelu_tanh(xp, x)
    inner = (1 + x * x * (3 * _CUBIC)) * math.sqrt(2 / math.pi)
    return (1 + tanh) * 0.5 + x * (1 - tanh * tanh) * inner * 0.5


def _silu_slope(xp: Namespace, x: Array) -> Array:
    gate = sigmoid(xp, x)
    return gate * (1 + x * (1 - gate))


_TANH_FORM = f"tanh(√(2 / π)·($0 + {_CUBIC}·$0^3))"
_TANH_SLOPE = f"(1 + {_TANH_FORM}) / 2 + $0·(1 - {_TANH_FORM}^2)·√(2 / π)·(1 + {3 * _CUBIC:.6f}·$0^2) / 2".replace(
    "$0", "$1"
)

FUNCTIONS = {
    function.name: function
    for function in (
        ScalarFunction(
            "relu", r"\max(0, $0)", "max(0, $0)", lambda xp, x: xp.maximum(x, xp.zeros_like(x)),
            lambda xp, x, y: xp.maximum(xp.sign(x), xp.zeros_like(x)), r"[$1 > 0]", "max(0, sign($1))",
            "ReLU: negative numbers become 0.",
        ),
        ScalarFunction(
            "relu_squared", r"\max(0, $0)^2", "max(0, $0)^2", lambda xp, x: xp.square(xp.maximum(x, xp.zeros_like(x))),
            lambda xp, x, y: 2 * xp.maximum(x, xp.zeros_like(x)), r"2 \max(0, $1)", "2·max(0, $1)",
            "ReLU squared: negative numbers become 0, others their square.",
        ),
        ScalarFunction(
            "gelu", r"$0 \, \Phi($0)", "$0·(1 + erf($0 / √2)) / 2", lambda xp, x: x * _normal(xp, x),
            lambda xp, x, y: _gelu_slope(xp, x), r"\Phi($1) + $1 \, \varphi($1)",
            "(1 + erf($1 / √2)) / 2 + $1·e^(-($1^2) / 2) / √(2·π)",
            "GELU: each number times the share of the normal distribution below it.",
        ),
        ScalarFunction(
            "gelu_tanh", r"\tfrac{1}{2} $0 \left(1 + \tanh\left(\sqrt{2/\pi}\,($0 + 0.044715\,$0^3)\right)\right)",
            f"$0·(1 + {_TANH_FORM}) / 2", lambda xp, x: x * (1 + _gelu_tanh(xp, x)) * 0.5,
            lambda xp, x, y: _gelu_tanh_slope(xp, x), r"\operatorname{GELU}'($1)", _TANH_SLOPE,
            "GELU in its tanh form, as GPT-2 computes it.",
        ),
        ScalarFunction(
            "silu", r"$0 \, \sigma($0)", "$0 / (1 + e^(-$0))", lambda xp, x: x * sigmoid(xp, x),
            lambda xp, x, y: _silu_slope(xp, x), r"\sigma($1) (1 + $1 (1 - \sigma($1)))",
            "(1 + $1·(1 - 1 / (1 + e^(-$1)))) / (1 + e^(-$1))", "SiLU: each number times its sigmoid.",
        ),
        ScalarFunction(
            "sigmoid", r"\sigma($0)", "1 / (1 + e^(-$0))", sigmoid, lambda xp, x, y: y * (1 - y),
            r"\sigma($1)(1 - \sigma($1))", "$2·(1 - $2)", "Sigmoid: every number becomes a share between 0 and 1.",
        ),
        ScalarFunction(
            "tanh", r"\tanh($0)", "tanh($0)", lambda xp, x: xp.tanh(x), lambda xp, x, y: 1 - y * y,
            r"1 - \tanh^2($1)", "1 - $2^2", "tanh: every number is limited to between -1 and 1.",
        ),
        ScalarFunction(
            "exp", r"e^{$0}", "e^$0", lambda xp, x: xp.exp(x), lambda xp, x, y: y, r"e^{$1}", "$2",
            "e to the power of each number.",
        ),
        ScalarFunction(
            "log", r"\ln $0", "ln($0)", lambda xp, x: xp.log(x), lambda xp, x, y: 1 / x, r"\frac{1}{$1}", "1 / $1",
            "The natural logarithm of each number.",
        ),
        ScalarFunction(
            "square", r"$0^2", "$0^2", lambda xp, x: xp.square(x), lambda xp, x, y: 2 * x, r"2 $1", "2·$1",
            "The square of each number.",
        ),
        ScalarFunction(
            "complement", r"1 - $0", "1 - $0", lambda xp, x: 1 - x, lambda xp, x, y: -xp.ones_like(x), "-1", "(-1)",
            "One minus each number.",
        ),
    )
}  # fmt: skip
"""Functions of one number by name."""
