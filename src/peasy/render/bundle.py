"""The modules of the page as one script: what they import from each other is already there, so no request is made."""

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

LOOKING = ("base.js", "numbers.js", "colour.js", "links.js", "chart.js", "cell.js", "maps.js", "plane.js")
"""What pictures of looking need; each stands after what it imports."""

PAGE = ("theme.js", "arithmetic.js", "page.js")
"""What every saved page has."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[a-z]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=function|async function|const|class)", re.MULTILINE)


def bundle(names: Iterable[str]) -> str:
    """These modules as one, in this order.

    >>> "import" in bundle(("numbers.js",)), "export" in bundle(("numbers.js",))
    (False, False)
    """
    return _EXPORT.sub("", _IMPORT.sub("", "\n".join(web_file(name) for name in names)))


@cache
def web_file(name: str) -> str:
    """One file of `render/web`."""
    return (resources.files("peasy.render") / "web" / name).read_text(encoding="utf-8")
