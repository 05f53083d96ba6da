"""`peasy version`."""

import platform
from importlib import metadata

from peasy import __version__
from peasy.cli.door import Answer, Flags, Page
from peasy.parts import EXTRAS
from peasy.views.document import Document, Table

_STANDS_ON = ("numpy", "array-api-compat", "tokenizers", "safetensors", "rich", "cyclopts")


def version(*, flags: Flags = Flags()) -> Answer:
    """Which peasy this is, and on what it stands.

    For example:

        peasy version
        peasy version --json
    """
    names = [*_STANDS_ON, *(module.replace("vl_convert", "vl-convert-python") for module in EXTRAS)]
    found = {"peasy": __version__, "python": platform.python_version()} | {name: _version(name) for name in names}
    rows = tuple((name, number or "not installed") for name, number in found.items())
    return Answer(Page(Document(f"peasy {__version__}", (Table(("part", "version"), rows),)), found))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
