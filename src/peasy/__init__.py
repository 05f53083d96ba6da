"""peasy: a Transformer workbench. Calculate attention by hand, train, run and inspect models."""

from functools import cache, update_wrapper
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the one table of public names; at run time each is imported on first use, so that import stays fast
    from peasy import formula as formula
    from peasy import nn as nn
    from peasy.commands.bench import bench as bench
    from peasy.commands.chat import chat as chat
    from peasy.commands.check import check as check
    from peasy.commands.classify import classify as classify
    from peasy.commands.compare import compare as compare
    from peasy.commands.data import data as data
    from peasy.commands.embed import embed as embed
    from peasy.commands.evaluate import evaluate as evaluate
    from peasy.commands.examples import examples as examples
    from peasy.commands.exercise import exercise as exercise
    from peasy.commands.explain import explain as explain
    from peasy.commands.exporting import export_model as export_model
    from peasy.commands.forward_pass import forward_pass as forward_pass
    from peasy.commands.generate import generate as generate
    from peasy.commands.importing import import_model as import_model
    from peasy.commands.load import load as load
    from peasy.commands.look import look as look
    from peasy.commands.plan import plan as plan
    from peasy.commands.prove import prove as prove
    from peasy.commands.runs import runs as runs
    from peasy.commands.sweep import logit_difference as logit_difference
    from peasy.commands.sweep import sweep as sweep
    from peasy.commands.tokenize import tokenize as tokenize
    from peasy.commands.train import train as train
    from peasy.commands.translate import translate as translate
    from peasy.errors import PeasyError as PeasyError
    from peasy.experiments.experiment import experiment as experiment
    from peasy.formula import Additive as Additive
    from peasy.formula import AttentionSteps as AttentionSteps
    from peasy.formula import attend as attend
    from peasy.formula import attend_with_weights as attend_with_weights
    from peasy.inspection import edit as edit
    from peasy.render.figure import Figure as Figure
    from peasy.server.app import serve as serve

__version__ = "0.1.0"


@cache
def _public_names() -> dict[str, str]:
    """Return the module of each public name, read from the table above."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names if alias.asname}


if not TYPE_CHECKING:  # a type checker knows no other names than those of the table

    def __getattr__(name: str) -> object:
        if name == "__all__":
            return [*(name for name, module in _public_names().items() if module != "peasy"), "__version__"]
        if (module := _public_names().get(name)) is None:
            raise AttributeError(f"module 'peasy' has no attribute {name!r}")
        with import_module("peasy.extras").naming_missing_extras():
            if module == "peasy":
                return import_module(f"peasy.{name}")  # a package with public names of its own
            public = getattr(import_module(module), name, None) or import_module(f"{module}.{name}")
        is_checked = module.startswith(("peasy.commands.", "peasy.experiments.", "peasy.server."))
        return _with_checked_keywords(public) if is_checked else public

    @cache
    def _with_checked_keywords(function: object) -> object:
        checked = import_module("peasy.parameters").with_checked_arguments(function)
        return update_wrapper(import_module("peasy.extras").naming_missing_extras()(checked), function)

    def __dir__() -> list[str]:
        return sorted(__getattr__("__all__"))
