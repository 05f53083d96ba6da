"""JavaScript bundler: concatenates the ES modules of `render/web` into one script without imports."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

FIGURE_MODULES = (
    "figure.js",
    "numbers.js",
    "colour.js",
    "links.js",
    "heatmap.js",
    "weight.js",
    "maps.js",
    "scatter.js",
)
"""Modules of the interactive attention figures, each after the ones it imports."""

PAGE_MODULES = ("theme.js", "arithmetic.js", "page.js")
"""Modules of every saved page."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[a-z]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function|async function|const|class)", re.MULTILINE)


def bundle(names: Iterable[str]) -> str:
    """Return the modules as one script, in this order.

    >>> "import" in bundle(("numbers.js",)), "export" in bundle(("numbers.js",))
    (False, False)
    """
    return _EXPORT.sub("", _IMPORT.sub("", "\n".join(web_file(name) for name in names)))


@cache
def web_file(name: str) -> str:
    """Return the text of a file in `render/web`."""
    return (resources.files("peasy.render") / "web" / name).read_text(encoding="utf-8")
