"""Optional dependencies: which extra of peasy provides a module, and how to install it.

The command line and the public functions name the extra of any module of this table that cannot be imported; import
such a module where it is used, never at the top of a file that others import. `require_extra` names it anywhere else:

    openpyxl = require_extra("openpyxl")

If it is missing, the error says what to type, and the command line exits with 5.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from peasy.errors import MissingExtra

DISTRIBUTION = "peasy-attention"
"""Name to install: on the package index, `peasy` is another project."""
CPU_TORCH = "pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
"""torch without CUDA, which plain pip brings on Linux (2.7 GB); on macOS and Windows plain pip takes a CPU build."""

_MODULES_OF_EXTRAS = {
    "data": "pyarrow",
    "export": "gguf onnx onnxscript",
    "kernel": "numba",
    "models": "torch babel huggingface_hub jinja2 sacrebleu safetensors tokenizers",
    "plots": "resvg_py reportlab svglib",
    "serve": "fastapi prometheus_client pydantic starlette uvicorn",
    "tracking": "tensorboard",
    "xlsx": "openpyxl xlsxwriter",
}
EXTRAS = {module: extra for extra, modules in _MODULES_OF_EXTRAS.items() for module in modules.split()}
"""Optional module -> extra of peasy that provides it."""


def install_line(*extras: str) -> str:
    """Return the command that installs peasy with some extras.

    >>> install_line("models")
    'pip install "peasy-attention[models]"'
    """
    return f'pip install "{DISTRIBUTION}[{",".join(extras)}]"' if extras else f"pip install {DISTRIBUTION}"


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
    pip install "peasy-attention[models]"
    """
    root = module.partition(".")[0]
    extra = extra or EXTRAS.get(root)
    line = install_line(extra) if extra else f"pip install {root}"
    return MissingExtra(f"This needs {root}, which is not installed.", hint=line)


@contextmanager
def naming_missing_extras() -> Iterator[None]:
    """Context manager and decorator: an optional module that is missing raises the error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRAS:
            raise
        raise missing_extra(error.name or "") from None
