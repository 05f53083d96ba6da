"""Steps of one parameter update: SGD, momentum, and AdamW with both moments, bias correction and weight decay."""

import numpy as np

from peasy.formula.step import Array, Namespace
from peasy.worked.builder import GraphBuilder, related_name
from peasy.worked.example import UpdateConfig
from peasy.worked.graph import Step
from peasy.worked.operations import Constant, WeightedSum


class SecondMoment(Step):
    """Moving mean of squared gradients: β v + (1 - β) g²."""

    beta: float
    label = "second moment"
    sentence = "The moving mean of the squared gradients."
    text = "$beta·$0 + (1 - $beta)·$1^2"
    tex = r"\beta_2 $0 + (1 - \beta_2) \left($1\right)^2"

    def forward(self, xp: Namespace, moment: Array, gradient: Array) -> Array:
        """Return β v + (1 - β) g²."""
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
        """Return m / (1 - βᵗ)."""
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
