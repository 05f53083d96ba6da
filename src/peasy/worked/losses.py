"""Steps of the loss: cross-entropy of each token, label smoothing, and the mean over the tokens that count."""

from peasy.formula.step import Array, Namespace
from peasy.worked.graph import Application, Route, Step, operands
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Gradients, Inputs


class LabelSmoothing(Step):
    """Smoothed targets: (1 - s) · target + s / size of the vocabulary; rows without a target stay zero."""

    smoothing: float
    is_fixed = True
    label = "smoothed"
    sentence = "Each target gives a small share to all words of the vocabulary."
    tex = r"(1 - s) $0 + \frac{s}{|V|}"

    def forward(self, xp: Namespace, targets: Array) -> Array:
        counted = xp.sum(targets, axis=-1, keepdims=True)
        return targets * (1 - self.smoothing) + counted * (self.smoothing / targets.shape[-1])

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        share = f"{format_operand(inputs[0][row].sum())}·{self.smoothing:g} / {inputs[0].shape[1]}"
        return f"{operands(row, column, inputs, decimals)[0]}·(1 - {self.smoothing:g}) + {share}"


class CrossEntropy(Step):
    """Cross-entropy of every row, one column; inputs are logits, their softmax, and targets (rows of shares)."""

    output_axes = ("0r", "loss")
    label = "loss"
    sentence = "The loss of each token: minus the logarithm of the probability of its target."
    tex = r"-\sum_j $2_{ij} \ln $1_{ij}"

    def forward(self, xp: Namespace, _logits: Array, probabilities: Array, targets: Array) -> Array:
        """Return -Σ t · ln p."""
        nothing = xp.zeros_like(targets)
        return -xp.sum(xp.where(targets == 0, nothing, targets * xp.log(probabilities)), axis=-1, keepdims=True)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        pairs = [(t, p) for t, p in zip(inputs[2][row], inputs[1][row], strict=True) if t]
        terms = [
            f"{'' if t == 1 else format_operand(t, decimals) + '·'}ln({format_number(p, decimals)})" for t, p in pairs
        ]
        return f"-({' + '.join(terms)})" if len(terms) > 1 else f"-{terms[0]}" if terms else "0"

    def gradients(self, at: Application) -> Gradients:
        """Return p - t for the logits, through softmax and logarithm at once."""
        return Route(CrossEntropyGradient(), (at.gradient, *at.inputs[1:])), None, None


class CrossEntropyGradient(Step):
    """Gradient of the logits: loss gradient times (probability - target); zero in rows without a target."""

    output_axes = ("1r", "1c")
    label = "gradient"
    sentence = "The probability minus the target, times the gradient of the token's loss."
    tex = r"$0 \odot ($1 - $2)"

    def forward(self, xp: Namespace, gradient: Array, probabilities: Array, targets: Array) -> Array:
        """Return g · (p - t)."""
        return gradient * (probabilities * xp.sum(targets, axis=-1, keepdims=True) - targets)

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        gradient, probability, target = operands(row, column, inputs, decimals)
        return f"{gradient}·({probability} - {target})" if inputs[2][row].any() else "0"


class TargetMean(Step):
    """Mean of the losses of all rows that have a target; inputs are losses and targets."""

    output_axes = ("mean", "loss")
    label = "mean"
    sentence = "The mean over the tokens that have a target."
    tex = r"\frac{1}{n} \sum_i $0_i"

    def forward(self, xp: Namespace, losses: Array, targets: Array) -> Array:
        counted = xp.sum(xp.astype(xp.any(targets != 0, axis=-1), xp.float64))
        return xp.sum(losses, axis=0, keepdims=True) / counted

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        counted = inputs[1].any(axis=1)
        terms = " + ".join(format_operand(number, decimals) for number in inputs[0][counted, 0])
        return f"({terms}) / {int(counted.sum())}"

    def gradients(self, at: Application) -> Gradients:
        """Return an equal share for each token with a target."""
        return Route(TargetShare(), (at.gradient, at.inputs[1])), None


class TargetShare(Step):
    """Gradient of each token's loss: 1/n where the row has a target, else 0; inputs are the gradient and targets."""

    output_axes = ("1r", "loss")
    label = "share"
    sentence = "Each token with a target has an equal share in the mean."
    tex = r"\frac{1}{n} $0"

    def forward(self, xp: Namespace, gradient: Array, targets: Array) -> Array:
        counted = xp.astype(xp.any(targets != 0, axis=-1, keepdims=True), xp.float64)
        return gradient * (counted / xp.sum(counted))

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        counted = int((inputs[1] != 0).any(axis=1).sum())
        return f"{format_operand(inputs[0][0, 0], decimals)} / {counted}" if inputs[1][row].any() else "0"


class SquaredError(Step):
    """Squared error of all numbers, one number: half the sum of (y - t)²; inputs are outputs and targets."""

    output_axes = ("sum", "loss")
    label = "loss"
    sentence = "Half the sum of the squared differences from the targets."
    tex = r"\tfrac{1}{2} \sum_{ij} ($0_{ij} - $1_{ij})^2"

    def forward(self, xp: Namespace, y: Array, targets: Array) -> Array:
        """Return ½ Σ (y - t)²."""
        rows = xp.sum(xp.square(y - targets), axis=-1, keepdims=True)
        return xp.sum(rows, axis=0, keepdims=True) * 0.5

    def summary(self, row: int, column: int, inputs: Inputs, decimals: int = 4) -> str:
        pairs = zip(inputs[0].ravel(), inputs[1].ravel(), strict=True)
        squares = (f"({format_number(y, decimals)} - {format_operand(t, decimals)})^2" for y, t in pairs)
        return f"({' + '.join(squares)}) / 2"

    def gradients(self, at: Application) -> Gradients:
        """Return y - t for the outputs."""
        return Route(SquaredErrorGradient(), (at.gradient, *at.inputs)), None


class SquaredErrorGradient(Step):
    """Gradient of the outputs: loss gradient times (y - t)."""

    output_axes = ("1r", "1c")
    label = "gradient"
    sentence = "The difference from the target, times the gradient of the loss."
    text = "$0·($1 - $2)"
    tex = "$0 ($1 - $2)"

    def forward(self, xp: Namespace, gradient: Array, y: Array, targets: Array) -> Array:
        """Return g · (y - t)."""
        return (y - targets) * gradient
