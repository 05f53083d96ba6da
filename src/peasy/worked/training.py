"""Steps of training: losses, label smoothing, and updates by SGD, momentum or AdamW with both moments and decay."""

import numpy as np

from peasy.formula.step import Array, Namespace
from peasy.worked.builder import GraphBuilder, related_name
from peasy.worked.example import UpdateConfig
from peasy.worked.graph import Application, Route, Step, operands
from peasy.worked.label import format_number, format_operand
from peasy.worked.operations import Constant, Gradients, Inputs, WeightedSum


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
        return (y - targets) * gradient


class SecondMoment(Step):
    """Moving mean of squared gradients: β v + (1 - β) g²."""

    beta: float
    label = "second moment"
    sentence = "The moving mean of the squared gradients."
    text = "$beta·$0 + (1 - $beta)·$1^2"
    tex = r"\beta_2 $0 + (1 - \beta_2) \left($1\right)^2"

    def forward(self, xp: Namespace, moment: Array, gradient: Array) -> Array:
        return moment * self.beta + xp.square(gradient) * (1 - self.beta)


class BiasCorrection(Step):
    """Moment divided by 1 - βᵗ, because moments start at zero."""

    beta: float
    step: int
    label = "corrected"
    sentence = "Moments start at zero; the division corrects for that."
    text = "$0 / (1 - $beta^$step)"
    tex = r"\frac{$0}{1 - \beta^{$step}}"

    def forward(self, xp: Namespace, moment: Array) -> Array:
        return moment / (1 - self.beta**self.step)


class AdamWUpdate(Step):
    """New parameter: w - lr · (m̂ / (√v̂ + ε) + λ w); inputs are w and the corrected moments."""

    lr: float
    eps: float
    weight_decay: float
    label = "new"
    sentence = "A step of about the learning rate against the gradient's sign; the decay pulls towards zero."
    text = "$0·(1 - $lr·$weight_decay) - $lr·$1 / (√($2) + $eps)"
    tex = r"$0 - \eta \left(\frac{$1}{\sqrt{$2} + \epsilon} + \lambda $0\right)"

    def forward(self, xp: Namespace, w: Array, first: Array, second: Array) -> Array:
        return w * (1 - self.lr * self.weight_decay) - first * self.lr / (xp.sqrt(second) + self.eps)


def add_updates(g: GraphBuilder, train: UpdateConfig, gradients: dict[str, str]) -> dict[str, str]:
    """Add the updated value of every parameter; return the new nodes by parameter."""
    wanted = train.parameters or tuple(g.parameters)
    return {name: _add_update(g, train, name, gradients[name]) for name in wanted if name in gradients}


def _add_update(g: GraphBuilder, train: UpdateConfig, name: str, gradient: str) -> str:
    symbol = g.nodes[name].symbol
    axes = g.nodes[name].caption.axes[-2:]

    def add(prefix: str, step: Step, *inputs: str, tex: str) -> str:
        return g.add(related_name(prefix, name), step, *inputs, symbol=tex, axes=axes)

    def old_moment(letter: str) -> str:
        own = related_name(f"old_{letter}", name)
        if g.has(own):
            return g.given(own, axes, "The moment after the steps before.", trained=False)
        zeros = Constant(np.zeros_like(g.values[name]), "Moments start at zero.", axes)
        return g.add(own, zeros, symbol=f"{letter}_{{0}}", listed=False)

    new = rf"{symbol}^{{\text{{new}}}}"
    if train.optimizer == "sgd":
        return add("new", WeightedSum((1, -train.lr), ("1", r"-\eta")), name, gradient, tex=new)
    if train.optimizer == "momentum":
        moment = add("m", WeightedSum((train.momentum, 1), (r"\mu", "1")), old_moment("m"), gradient, tex="m")
        return add("new", WeightedSum((1, -train.lr), ("1", r"-\eta")), name, moment, tex=new)
    first = WeightedSum((train.beta_1, 1 - train.beta_1), (r"\beta_1", r"(1 - \beta_1)"))
    moments = [
        add("m", first, old_moment("m"), gradient, tex="m"),
        add("v", SecondMoment(train.beta_2), old_moment("v"), gradient, tex="v"),
    ]
    corrected = [
        add(f"{letter}_hat", BiasCorrection(beta, train.step), moment, tex=rf"\hat{{{letter}}}")
        for letter, beta, moment in zip("mv", (train.beta_1, train.beta_2), moments, strict=True)
    ]
    return add("new", AdamWUpdate(train.lr, train.eps, train.weight_decay), name, *corrected, tex=new)
