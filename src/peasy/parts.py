"""Parts of peasy that may be absent: which extra brings a module, and the line that installs it.

A room that needs one calls `need` where it is first used, never at the top of a file that others import:

    torch = need("torch")

Without it the person sees what to type, and the command line exits 5.
"""

from importlib import import_module
from types import ModuleType

from peasy.errors import MissingPart

EXTRAS = {
    "anywidget": "notebook",
    "gguf": "export",
    "onnx": "export",
    "onnxscript": "export",
    "pyarrow": "data",
    "sentencepiece": "hf",
    "tensorboard": "tracking",
    "torch": "models",
    "vl_convert": "plots",
}
"""The extra of peasy that brings each optional module."""


def need(module: str, *, extra: str | None = None) -> ModuleType:
    """The module, imported; or an error that says how to install it.

    >>> need("json").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the part is there, and broken inside: not for us to hide
        raise missing(module, extra=extra) from None


def missing(module: str, *, extra: str | None = None) -> MissingPart:
    """The error that says which extra brings `module`.

    >>> print(missing("torch").hint)
    pip install "peasy[models]"
    """
    root = module.partition(".")[0]
    extra = extra or EXTRAS.get(root)
    line = f'pip install "peasy[{extra}]"' if extra else f"pip install {root}"
    return MissingPart(f"This needs {root}, which is not installed.", hint=line)
