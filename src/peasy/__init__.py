"""peasy: a Transformer workbench. Calculate attention by hand, train, run and inspect models."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from peasy import display

if TYPE_CHECKING:
    from peasy.commands.bench import bench
    from peasy.commands.chat import chat
    from peasy.commands.check import check
    from peasy.commands.compare import compare
    from peasy.commands.data import data
    from peasy.commands.embed import embed
    from peasy.commands.evaluate import evaluate
    from peasy.commands.examples import examples
    from peasy.commands.exercise import exercise
    from peasy.commands.explain import explain
    from peasy.commands.exporting import export_model
    from peasy.commands.generate import generate
    from peasy.commands.importing import import_model
    from peasy.commands.load import load
    from peasy.commands.look import look
    from peasy.commands.plan import plan
    from peasy.commands.prove import prove
    from peasy.commands.tokenize import tokenize
    from peasy.commands.train import train
    from peasy.commands.translate import translate
    from peasy.errors import PeasyError
    from peasy.experiments.experiment import experiment
    from peasy.formula import Additive, AttentionSteps, attend, attend_with_weights
    from peasy.inspection.interventions import cut, even, off, patch

__version__ = "0.1.0"

_MODULE_OF_NAME = {
    "Additive": "peasy.formula",
    "AttentionSteps": "peasy.formula",
    "PeasyError": "peasy.errors",
    "attend": "peasy.formula",
    "attend_with_weights": "peasy.formula",
    "bench": "peasy.commands.bench",
    "chat": "peasy.commands.chat",
    "check": "peasy.commands.check",
    "compare": "peasy.commands.compare",
    "cut": "peasy.inspection.interventions",
    "data": "peasy.commands.data",
    "embed": "peasy.commands.embed",
    "evaluate": "peasy.commands.evaluate",
    "even": "peasy.inspection.interventions",
    "examples": "peasy.commands.examples",
    "exercise": "peasy.commands.exercise",
    "experiment": "peasy.experiments.experiment",
    "explain": "peasy.commands.explain",
    "export_model": "peasy.commands.exporting",
    "generate": "peasy.commands.generate",
    "import_model": "peasy.commands.importing",
    "load": "peasy.commands.load",
    "look": "peasy.commands.look",
    "off": "peasy.inspection.interventions",
    "patch": "peasy.inspection.interventions",
    "plan": "peasy.commands.plan",
    "prove": "peasy.commands.prove",
    "tokenize": "peasy.commands.tokenize",
    "train": "peasy.commands.train",
    "translate": "peasy.commands.translate",
}
"""Module of each public name; imported on first use, so that `import peasy` stays fast."""

__all__ = [
    "Additive",
    "AttentionSteps",
    "PeasyError",
    "__version__",
    "attend",
    "attend_with_weights",
    "bench",
    "chat",
    "check",
    "compare",
    "cut",
    "data",
    "embed",
    "evaluate",
    "even",
    "examples",
    "exercise",
    "experiment",
    "explain",
    "export_model",
    "generate",
    "import_model",
    "load",
    "look",
    "off",
    "patch",
    "plan",
    "prove",
    "tokenize",
    "train",
    "translate",
]


_PUBLIC_PACKAGES = ("formula", "nn")
"""Packages with a public API of their own: `peasy.nn.SelfAttention` needs no second import."""


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_PACKAGES:
        return import_module(f"peasy.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'peasy' has no attribute {name!r}")
    module = _MODULE_OF_NAME[name]
    public = getattr(import_module(module), name)
    return _with_checked_keywords(public) if module.startswith("peasy.commands.") else public


@cache
def _with_checked_keywords(function: Any) -> Any:
    return import_module("peasy.errors").with_checked_keywords(function)


def __dir__() -> list[str]:
    return sorted(__all__)


def _render(result: Any) -> dict[str, str]:
    return import_module("peasy.render").mimebundle(result)


def _make_widget(result: Any) -> Any:
    return import_module("peasy.notebook").widget(result)


display.renderer = _render
display.make_widget = _make_widget
