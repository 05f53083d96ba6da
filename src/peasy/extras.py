"""Optional dependencies: which extra of peasy provides a module, and how to install it.

Call `require_extra` where the module is first used, never at the top of a file that others import:

    torch = require_extra("torch")

If it is missing, the error says what to type, and the command line exits with 5.
"""

from importlib import import_module
from types import ModuleType

from peasy.errors import MissingExtra

EXTRAS = {
    "anywidget": "notebook",
    "gguf": "export",
    "onnx": "export",
    "onnxscript": "export",
    "openpyxl": "xlsx",
    "pyarrow": "data",
    "sentencepiece": "hf",
    "tensorboard": "tracking",
    "torch": "models",
    "vl_convert": "plots",
}
"""Optional module -> extra of peasy that provides it."""


def require_extra(module: str, *, extra: str | None = None) -> ModuleType:
    """Import and return an optional module, or raise an error that says how to install it.

    >>> require_extra("json").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # the module is installed but broken: do not hide the error
        raise missing_extra(module, extra=extra) from None


def missing_extra(module: str, *, extra: str | None = None) -> MissingExtra:
    """Return the error that says which extra provides `module`.

    >>> print(missing_extra("torch").hint)
    pip install "peasy[models]"
    """
    root = module.partition(".")[0]
    extra = extra or EXTRAS.get(root)
    line = f'pip install "peasy[{extra}]"' if extra else f"pip install {root}"
    return MissingExtra(f"This needs {root}, which is not installed.", hint=line)
