"""Elementary steps of the computation graph with their gradients: products, sums, functions, means, norms, columns.

Each class computes one operation on matrices `[row, column]`, says its formula and sentence, and writes one cell.
Its `gradients` are again steps, so that the backward pass is part of the same graph.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from peasy.formula.activations import ScalarFunction
from peasy.formula.arrays import project
from peasy.formula.step import Array, Namespace
from peasy.worked.graph import (
    Application,
    ArithmeticLine,
    CellContext,
    Route,
    Step,
    format_product,
    format_sum,
    format_terms,
    in_brackets,
    operands,
)
from peasy.worked.label import format_number, format_operand

Lines = Iterator[ArithmeticLine]
Inputs = Sequence[np.ndarray]
Gradients = tuple[Route | None, ...]
Axes = tuple[str, ...]


class Unchanged(Step):
    """Copy of the input, such as queries without a projection."""

    label = "input, unchanged"
    sentence = "The numbers are passed on unchanged."
    tex = "$0"

    def forward(self, xp: Namespace, x: Array) -> Array:
        return x

    def gradients(self, at: Application) -> Gradients:
        """Return the output's gradient, unchanged."""
        return (Route(Unchanged(), (at.gradient,)),)


class Project(Step):
    """Matrix product of two inputs, plus a bias row if there is a third: x · W + b; `transposed` names one input."""

    product: str = "row · column"
    names: tuple[str, str] = ("the first matrix", "the second matrix")
    transposed: Literal["", "left", "right"] = ""
    sentence = "Each number is the dot product of a row of the first matrix and a column of the second."

    def __post_init__(self) -> None:
        tex = {"": r"$0 \, $1", "left": r"$0^{\top} \, $1", "right": r"$0 \, $1^{\top}"}
        axes = ("0c" if self.transposed == "left" else "0r", "1r" if self.transposed == "right" else "1c")
        vars(self).update(label=self.product, tex=tex[self.transposed], output_axes=axes)

    def _factors(self, xp: Namespace, inputs: Sequence[Array]) -> tuple[Array, Array]:
        left = xp.matrix_transpose(inputs[0]) if self.transposed == "left" else inputs[0]
        return left, xp.matrix_transpose(inputs[1]) if self.transposed == "right" else inputs[1]

    def forward(self, xp: Namespace, x: Array, w: Array, bias: Array | None = None) -> Array:
        product = project(*self._factors(xp, (x, w)), self.names)
        return product if bias is None else product + bias

    def terms(self, row: int, column: int, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        left, right = self._factors(np, inputs)
        return left[row], right[:, column]

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        pairs = np.stack(self.terms(row, column, inputs), axis=1)
        products = format_sum(pairs if len(pairs) <= 6 else pairs[pairs[:, 0] != 0], format_product)
        return products if len(inputs) == 2 else f"{products} + {format_operand(inputs[2][0, column])}"

    def lines(self, cell: CellContext) -> Lines:
        bias = None if len(cell.inputs) == 2 else float(cell.inputs[2][0, cell.column])
        yield from cell.dot_product(self.label, *self.terms(cell.row, cell.column, cell.inputs), bias=bias)

    def formula(self, *symbols: str) -> str:
        return super().formula(*symbols) + "".join(f" + {bias}" for bias in symbols[2:])

    def gradients(self, at: Application) -> Gradients:
        """Return dx = dy · Wᵀ, dW = xᵀ · dy and the column sums for the bias."""
        (x, w), g = at.inputs[:2], at.gradient
        left = {"": (("right", g, w)), "left": ("right", w, g), "right": ("", g, w)}[self.transposed]
        right = {"": ("left", x, g), "left": ("", x, g), "right": ("left", g, x)}[self.transposed]
        products = [Route(Project("row · column", transposed=which), pair) for which, *pair in (left, right)]  # type: ignore[arg-type]
        return (*products, *(Route(Sum(axis=0), (g,)) for _ in at.inputs[2:]))


class TransposeMatrix(Step):
    """Transposed matrix."""

    name: str = "the matrix"
    output_axes = ("0c", "0r")
    sentence = "Rows become columns."
    tex = r"$0^{\top}"

    def forward(self, xp: Namespace, x: Array) -> Array:
        return xp.matrix_transpose(x)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return f"row {column + 1}, column {row + 1} of {self.name}"

    def lines(self, cell: CellContext) -> Lines:
        yield cell.line(self.summary(cell.row, cell.column, cell.inputs))

    def gradients(self, at: Application) -> Gradients:
        """Return the transposed gradient."""
        return (Route(TransposeMatrix("the gradient"), (at.gradient,)),)


class Sum(Step):
    """Sum of every row (axis 1, one column) or column (axis 0, one row)."""

    axis: int = 1
    label = "sum"

    def __post_init__(self) -> None:
        row, index = ("row", "j") if self.axis else ("column", "i")
        axes = ("0r", "sum") if self.axis else ("sum", "0c")
        vars(self).update(output_axes=axes, sentence=f"The sum of each {row}.", tex=rf"\sum_{index} $0_{{ij}}")

    def forward(self, xp: Namespace, x: Array) -> Array:
        return xp.sum(x, axis=self.axis, keepdims=True)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        numbers = inputs[0][row] if self.axis else inputs[0][:, column]
        return format_terms([format_operand(number, decimals) for number in numbers], numbers, decimals)

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient of the sum for each of its terms."""
        return (Route(Repeat(), (at.gradient, at.inputs[0])),)


class Repeat(Step):
    """Rows or columns of the first input repeated to the shape of the second, times a factor if it is a mean."""

    mean: bool = False
    output_axes = ("1r", "1c")
    label = "repeated"
    sentence = "Each number of a sum receives the gradient of the sum; of a mean, its share of it."

    def _count(self, inputs: Sequence[Array]) -> float:
        small, large = (array.shape[0] * array.shape[1] for array in inputs)
        return large / small if self.mean else 1

    def forward(self, xp: Namespace, x: Array, like: Array) -> Array:
        return xp.broadcast_to(x / self._count((x, like)), like.shape)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        number, count = operands(row, column, inputs[:1], decimals)[0], self._count(inputs)
        return f"{number} / {format_number(count)}" if self.mean else number

    def formula(self, *symbols: str) -> str:
        return rf"\frac{{1}}{{n}} {in_brackets(symbols[0])}" if self.mean else symbols[0]


class Add(Step):
    """Sum of all inputs; a single row or column is added to every row or column."""

    label = "sum"
    sentence = "The numbers are added."

    def forward(self, xp: Namespace, first: Array, second: Array, *others: Array) -> Array:
        return sum(others, first + second)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return " + ".join(operands(row, column, inputs, decimals))

    def formula(self, *symbols: str) -> str:
        return " + ".join(symbols)

    def gradients(self, at: Application) -> Gradients:
        """Return the same gradient for each input, summed over rows or columns that were repeated."""
        shape = np.broadcast_shapes(*at.shapes)
        return tuple(_reduced(Route(Unchanged(), (at.gradient,)), of, shape) for of in at.shapes)


def _reduced(route: Route, own: tuple[int, ...], shape: tuple[int, ...]) -> Route:
    """Return the route of a gradient, summed over the axis along which the input was repeated."""
    if own == shape:
        return route
    if isinstance(route.step, Multiply):
        return Route(ProductSum(axis=int(own[0] == shape[0])), route.inputs)
    return Route(Sum(axis=int(own[0] == shape[0])), route.inputs)


class Multiply(Step):
    """Elementwise product; a single row or column multiplies every row or column."""

    label = "product"
    sentence = "The numbers are multiplied, place by place."
    text = "$0·$1"
    tex = r"$0 \odot $1"

    def forward(self, xp: Namespace, x: Array, y: Array) -> Array:
        return x * y

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient times the other factor."""
        shape = np.broadcast_shapes(*at.shapes)
        pairs = zip(at.inputs[::-1], at.shapes, strict=True)
        return tuple(_reduced(Route(Multiply(), (at.gradient, other)), own, shape) for other, own in pairs)


class ProductSum(Step):
    """Sum over rows (axis 0) or columns (axis 1) of an elementwise product."""

    axis: int = 0
    label = "sum of products"
    sentence = "The numbers are multiplied, place by place, and summed."

    def __post_init__(self) -> None:
        index, axes = ("j", ("0r", "sum")) if self.axis else ("i", ("sum", "0c"))
        vars(self).update(tex=rf"\sum_{index} \left($0 \odot $1\right)_{{ij}}", output_axes=axes)

    def forward(self, xp: Namespace, x: Array, y: Array) -> Array:
        return xp.sum(x * y, axis=self.axis, keepdims=True)

    def terms(self, row: int, column: int, inputs: Inputs) -> tuple[np.ndarray, np.ndarray]:
        left, right = np.broadcast_arrays(*inputs)
        return (left[row], right[row]) if self.axis else (left[:, column], right[:, column])

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return format_sum(np.stack(self.terms(row, column, inputs), axis=1), format_product)

    def lines(self, cell: CellContext) -> Lines:
        yield from cell.dot_product(self.label, *self.terms(cell.row, cell.column, cell.inputs))


class Divide(Step):
    """Quotient of two inputs, such as the powers of e and their row sums."""

    label = "share"
    sentence = "The first number is divided by the second."
    text = "$0 / $1"
    tex = r"\frac{$0}{$1}"

    def forward(self, xp: Namespace, x: Array, y: Array) -> Array:
        return x / y


class Apply(Step):
    """Function of every number: ReLU, GELU, SiLU, sigmoid, tanh ..."""

    function: ScalarFunction

    def __post_init__(self) -> None:
        f = self.function
        vars(self).update(label=f.name, sentence=f.sentence, text=f.text, tex=f.tex)

    def forward(self, xp: Namespace, x: Array) -> Array:
        return self.function.value(xp, x)

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient times the derivative."""
        return (Route(ApplyGradient(self.function), (at.gradient, at.inputs[0], at.output)),)


class ApplyGradient(Step):
    """Gradient through a function: dy · f'(x); inputs are dy, x and y = f(x)."""

    function: ScalarFunction
    label = "gradient times derivative"
    sentence = "The gradient is multiplied by the derivative of the function."

    def __post_init__(self) -> None:
        slope = self.function.slope_text, self.function.slope_tex
        vars(self).update(text=f"$0·({slope[0]})", tex=rf"$0 \odot \left({slope[1]}\right)")

    def forward(self, xp: Namespace, gradient: Array, x: Array, y: Array) -> Array:
        return gradient * self.function.slope(xp, x, y)


class Mean(Step):
    """Mean of every row, one column; of the squares with `squared`."""

    squared: bool = False
    output_axes = ("0r", "mean")
    label = "mean"

    def __post_init__(self) -> None:
        squares, power = ("the squares in ", "^2") if self.squared else ("", "")
        tex = rf"\frac{{1}}{{d}} \sum_j $0_{{ij}}{power}"
        vars(self).update(sentence=f"The mean of {squares}each row.", tex=tex)

    def forward(self, xp: Namespace, x: Array) -> Array:
        return xp.mean(xp.square(x) if self.squared else x, axis=-1, keepdims=True)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        numbers, power = inputs[0][row], "^2" if self.squared else ""
        terms = [format_operand(number, decimals) + power for number in numbers]
        total = format_terms(terms, numbers**2 if self.squared else numbers, decimals)
        return f"({total}) / {len(numbers)}"

    def gradients(self, at: Application) -> Gradients:
        """Return the share of each number."""
        return (None if self.squared else Route(Repeat(mean=True), (at.gradient, at.inputs[0])),)


class Variance(Step):
    """Variance of every row, one column; inputs are x and its mean."""

    output_axes = ("0r", "variance")
    is_fixed = True  # `Standardise` gives the whole gradient of x
    label = "variance"
    tex = r"\frac{1}{d} \sum_j ($0_{ij} - $1_i)^2"
    sentence = "The mean squared deviation from the mean of each row."

    def forward(self, xp: Namespace, x: Array, mean: Array) -> Array:
        return xp.mean(xp.square(x - mean), axis=-1, keepdims=True)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        mean = format_operand(inputs[1][row, 0], decimals)
        squares = [f"({format_number(number, decimals)} - {mean})^2" for number in inputs[0][row]]
        total = format_terms(squares, (inputs[0][row] - inputs[1][row, 0]) ** 2, decimals)
        return f"({total}) / {inputs[0].shape[1]}"


class Standardise(Step):
    """Rows with mean 0 and variance 1; inputs are x, mean and variance, or x and mean square (RMS norm)."""

    eps: float = 1e-5
    label = "normalised"
    sentence = "Each number, less the mean of its row, is divided by the standard deviation of its row."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        """Return (x - mean) / √(variance + ε)."""
        centred = inputs[0] - inputs[1] if len(inputs) == 3 else inputs[0]
        return centred / xp.sqrt(inputs[-1] + self.eps)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        numbers = operands(row, column, inputs, decimals)
        centred = f"({numbers[0]} - {numbers[1]})" if len(inputs) == 3 else numbers[0]
        return f"{centred} / √({numbers[-1]}{f' + {self.eps:g}' if self.eps else ''})"

    def formula(self, *symbols: str) -> str:
        centred = " - ".join(symbols[:-1])
        return rf"\frac{{{centred}}}{{\sqrt{{{symbols[-1]} + \epsilon}}}}"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient of x, with the parts that pass through mean and variance."""
        centred = len(at.inputs) == 3
        route = Route(StandardiseGradient(centred, self.eps), (at.gradient, at.output, at.inputs[-1]))
        return (route, *(None for _ in at.inputs[1:]))


class StandardiseGradient(Step):
    """Gradient of a norm's input: (dx̂ - mean(dx̂) - x̂ · mean(dx̂ · x̂)) / √(variance + ε)."""

    centred: bool
    eps: float
    label = "gradient"
    sentence = (
        "From each gradient, what would shift the mean or stretch the row is subtracted: the norm undoes both. "
        "The rest is divided by the standard deviation."
    )

    def forward(self, xp: Namespace, gradient: Array, normalised: Array, variance: Array) -> Array:
        stretch = xp.mean(gradient * normalised, axis=-1, keepdims=True)
        rest = gradient - normalised * stretch
        rest = rest - xp.mean(gradient, axis=-1, keepdims=True) if self.centred else rest
        return rest / xp.sqrt(variance + self.eps)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        gradient, normalised, variance = operands(row, column, inputs, decimals)
        shift = f" - {format_operand(inputs[0][row].mean(), decimals)}" if self.centred else ""
        stretch = format_operand((inputs[0][row] * inputs[1][row]).mean(), decimals)
        root = f"√({variance}{f' + {self.eps:g}' if self.eps else ''})"
        return f"({gradient}{shift} - {normalised}·{stretch}) / {root}"

    def lines(self, cell: CellContext) -> Lines:
        gradient, normalised = cell.inputs[0][cell.row], cell.inputs[1][cell.row]
        if self.centred:
            yield cell.line("mean of the gradients", Mean().summary(cell.row, 0, cell.inputs, cell.decimals),
                            value=gradient.mean())  # fmt: skip
        pairs = zip(gradient, normalised, strict=True)
        terms = [f"{cell.format_operand(a)}·{cell.format_operand(b)}" for a, b in pairs]
        products = format_terms(terms, gradient * normalised, cell.decimals)
        mean = float((gradient * normalised).mean())
        yield cell.line("mean of gradient times normalised", f"({products}) / {len(gradient)}", value=mean)
        yield from super().lines(cell)

    def formula(self, *symbols: str) -> str:
        gradient, normalised, variance = symbols
        shift = rf" - \overline{{{gradient}}}" if self.centred else ""
        stretch = rf"{normalised} \, \overline{{{gradient} \odot {normalised}}}"
        return rf"\frac{{{gradient}{shift} - {stretch}}}{{\sqrt{{{variance} + \epsilon}}}}"


class TokenShift(Step):
    """First half of every row taken from the row before, 0 in the first row; `back` is its gradient."""

    back: bool = False
    label = "shifted"
    sentence = "The first half of each row comes from the token before, so that each token knows its neighbour."
    tex = r"\operatorname{shift}($0)"

    def forward(self, xp: Namespace, x: Array) -> Array:
        half = x.shape[1] // 2
        first = x[:, :half]
        zero = xp.zeros_like(first[:1, :])
        shifted = xp.concat([first[1:, :], zero] if self.back else [zero, first[:-1, :]], axis=0)
        return xp.concat([shifted, x[:, half:]], axis=-1)

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient shifted back."""
        return (Route(TokenShift(back=not self.back), (at.gradient,)),)


class Columns(Step):
    """Columns `start` to `start + width` of the input."""

    start: int
    width: int
    label = "copied"
    sentence = "Some of the columns."

    def forward(self, xp: Namespace, x: Array) -> Array:
        return x[:, self.start : self.start + self.width]

    def formula(self, *symbols: str) -> str:
        return rf"{symbols[0]}_{{:, {self.start}:{self.start + self.width}}}"

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient in its columns, zero elsewhere."""
        return (Route(PlaceColumns((self.start,), at.shapes[0][1]), (at.gradient,)),)


class PlaceColumns(Step):
    """Inputs put at their first columns in a matrix of `width` columns; where several overlap, their sum."""

    starts: tuple[int, ...]
    width: int
    label = "sum over the heads"
    operator = "Concat"
    sentence = "The columns of each head are put in their place."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        total: Array = 0
        for start, part in zip(self.starts, inputs, strict=True):
            before = xp.zeros_like(xp.broadcast_to(part[:, :1], (part.shape[0], start)))
            rest = self.width - start - part.shape[1]
            after = xp.zeros_like(xp.broadcast_to(part[:, :1], (part.shape[0], rest)))
            total = xp.concat([before, part, after], axis=-1) + total
        return total

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        covering = [
            format_operand(part[row, column - start], decimals)
            for start, part in zip(self.starts, inputs, strict=True)
            if start <= column < start + part.shape[1]
        ]
        return " + ".join(covering) or "0"


class Concatenate(Step):
    """Contexts of all heads side by side."""

    operator = "Concat"
    sentence = "The columns of all inputs side by side."

    def forward(self, xp: Namespace, first: Array, second: Array, *others: Array) -> Array:
        return xp.concat([first, second, *others], axis=-1)

    def lines(self, cell: CellContext) -> Lines:
        head, column = divmod(cell.column, cell.inputs[0].shape[-1])
        yield cell.line(f"from head {head + 1}, column {column}")

    def gradients(self, at: Application) -> Gradients:
        """Return the columns of each input."""
        starts = np.cumsum([0, *(shape[1] for shape in at.shapes)])
        return tuple(
            Route(Columns(int(start), shape[1]), (at.gradient,))
            for start, shape in zip(starts[:-1], at.shapes, strict=True)
        )


class WeightedSum(Step):
    """Sum of the inputs with fixed factors: a x + b y; `names` are the factors in TeX."""

    factors: tuple[float, ...]
    names: tuple[str, ...] = ()
    label = "sum"
    sentence = "The numbers are multiplied by fixed factors and added."

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        total = inputs[0] * self.factors[0]
        for factor, array in zip(self.factors[1:], inputs[1:], strict=True):
            total = total + array * factor
        return total

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        factors = (format_operand(factor, max(decimals, 8)) for factor in self.factors)
        pairs = zip(factors, operands(row, column, inputs, decimals), strict=True)
        return " + ".join(number if factor == "1" else f"{factor}·{number}" for factor, number in pairs)

    def formula(self, *symbols: str) -> str:
        names = self.names or tuple(format_operand(factor, 6) for factor in self.factors)
        pairs = zip(names, map(in_brackets, symbols), strict=True)
        return " + ".join(symbol if name == "1" else f"{name} {symbol}" for name, symbol in pairs).replace("+ -", "- ")

    def gradients(self, at: Application) -> Gradients:
        """Return the gradient times each factor."""
        return tuple(Route(WeightedSum((factor,)), (at.gradient,)) for factor in self.factors)


class Constant(Step, eq=False):
    """Fixed matrix, such as the one-hot rows of tokens; `why` says where its numbers come from, `texts` how."""

    values: np.ndarray
    why: str
    names: Axes = ("row", "column")
    texts: Sequence[Sequence[str]] = ()
    is_fixed = True
    label = "fixed"

    def __post_init__(self) -> None:
        vars(self).update(sentence=self.why, output_axes=self.names)

    def forward(self, xp: Namespace, *inputs: Array) -> Array:
        return xp.asarray(self.values.tolist(), dtype=xp.float64)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        return self.texts[row][column] if self.texts else ""

    def formula(self, *symbols: str) -> str:
        return ""
