"""Mixins of public objects: notebook display and checked arguments; `render` is found by name."""

from importlib import import_module
from types import FunctionType

from peasy.parameters import with_checked_arguments


class CheckedMethods:
    """Base class whose public methods answer wrong arguments in a sentence, as public functions do."""

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        methods = {name: method for base in reversed(cls.__mro__) for name, method in vars(base).items()}
        for name, method in methods.items():
            if isinstance(method, FunctionType) and _takes_arguments(method) and name[0] != "_":
                setattr(cls, name, with_checked_arguments(method))


def _takes_arguments(method: FunctionType) -> bool:
    code = method.__code__
    return code.co_argcount + code.co_kwonlyargcount > 1 and method.__module__.startswith("peasy.")


class DisplayMixin(CheckedMethods):
    """Mixin: rich display in notebooks as plain text, script-free HTML and SVG."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = import_module("peasy.render").mimebundle(self)
        return bundle

    def _repr_html_(self) -> str | None:
        return self._repr_mimebundle_().get("text/html")

    def widget(self) -> object:
        """Return an interactive notebook widget to browse cells, layers and heads."""
        return import_module("peasy.notebook").widget(self)
