"""peasy: a Transformer workbench. Calculate attention by hand, train, run and inspect models."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peasy import display

if TYPE_CHECKING:
    from peasy.errors import PeasyError
    from peasy.formula import Additive, AttentionSteps, attend, attend_with_weights
    from peasy.looking.edit import cut, even, off, patch
    from peasy.workbench.bench import bench
    from peasy.workbench.chat import chat
    from peasy.workbench.check import check
    from peasy.workbench.compare import compare
    from peasy.workbench.data import data
    from peasy.workbench.embed import embed
    from peasy.workbench.evaluate import evaluate
    from peasy.workbench.examples import examples
    from peasy.workbench.exercise import exercise
    from peasy.workbench.experiment import experiment, experiments
    from peasy.workbench.explain import explain
    from peasy.workbench.exporting import export_model
    from peasy.workbench.generate import generate
    from peasy.workbench.importing import import_model
    from peasy.workbench.load import load
    from peasy.workbench.look import look
    from peasy.workbench.plan import plan
    from peasy.workbench.prove import prove
    from peasy.workbench.tokenize import tokenize
    from peasy.workbench.train import train
    from peasy.workbench.translate import translate

__version__ = "0.1.0"

_HOMES = {
    "Additive": "peasy.formula",
    "AttentionSteps": "peasy.formula",
    "PeasyError": "peasy.errors",
    "attend": "peasy.formula",
    "attend_with_weights": "peasy.formula",
    "bench": "peasy.workbench.bench",
    "chat": "peasy.workbench.chat",
    "check": "peasy.workbench.check",
    "compare": "peasy.workbench.compare",
    "cut": "peasy.looking.edit",
    "data": "peasy.workbench.data",
    "embed": "peasy.workbench.embed",
    "evaluate": "peasy.workbench.evaluate",
    "even": "peasy.looking.edit",
    "examples": "peasy.workbench.examples",
    "exercise": "peasy.workbench.exercise",
    "experiment": "peasy.workbench.experiment",
    "experiments": "peasy.workbench.experiment",
    "explain": "peasy.workbench.explain",
    "export_model": "peasy.workbench.exporting",
    "generate": "peasy.workbench.generate",
    "import_model": "peasy.workbench.importing",
    "load": "peasy.workbench.load",
    "look": "peasy.workbench.look",
    "off": "peasy.looking.edit",
    "patch": "peasy.looking.edit",
    "plan": "peasy.workbench.plan",
    "prove": "peasy.workbench.prove",
    "tokenize": "peasy.workbench.tokenize",
    "train": "peasy.workbench.train",
    "translate": "peasy.workbench.translate",
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
    "experiments",
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


_ROOMS = ("formula", "nn")
"""Packages with a public API of their own: `peasy.nn.SelfAttention` needs no second import."""


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"peasy.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'peasy' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _paint(shown: Any) -> dict[str, str]:
    return import_module("peasy.render").mimebundle(shown)


def _make_widget(shown: Any) -> Any:
    return import_module("peasy.notebook").widget(shown)


display.painter = _paint
display.make_widget = _make_widget
