"""`peasy version`: versions of peasy and its dependencies."""

import platform
from importlib import metadata

from peasy import __version__
from peasy.cli.door import Answer, Flags, Page
from peasy.parts import EXTRAS
from peasy.views.document import Document, Table

_STANDS_ON = ("numpy", "array-api-compat", "tokenizers", "safetensors", "rich", "cyclopts")


def version(*, flags: Flags = Flags()) -> Answer:
    """Print the versions of peasy and its dependencies.

    For example:

        peasy version
        peasy version --json
    """
    names = [*_STANDS_ON, *(module.replace("vl_convert", "vl-convert-python") for module in EXTRAS)]
    versions = {"peasy": __version__, "python": platform.python_version()} | {name: _version(name) for name in names}
    rows = tuple((name, number or "not installed") for name, number in versions.items())
    return Answer(Page(Document(f"peasy {__version__}", (Table(("package", "version"), rows),)), versions))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
