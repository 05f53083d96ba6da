"""`peasy version`: versions of peasy and its dependencies."""

import platform
from importlib import metadata

from peasy import __version__
from peasy.cli.command import CommandOutput, DocumentResult, Flags
from peasy.extras import EXTRAS
from peasy.views.document import Document, Table

_DEPENDENCIES = ("numpy", "array-api-compat", "tokenizers", "safetensors", "rich", "cyclopts")


def version(*, flags: Flags = Flags()) -> CommandOutput:
    """Print the versions of peasy and its dependencies.

    For example:

        peasy version
        peasy version --json
    """
    names = [*_DEPENDENCIES, *(module.replace("vl_convert", "vl-convert-python") for module in EXTRAS)]
    versions = {"peasy": __version__, "python": platform.python_version()} | {name: _version(name) for name in names}
    rows = tuple((name, number or "not installed") for name, number in versions.items())
    return CommandOutput(
        DocumentResult(Document(f"peasy {__version__}", (Table(("package", "version"), rows),)), versions)
    )


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
