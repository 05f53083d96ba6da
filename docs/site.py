"""Hooks of the site (mkdocs.yml): the API reference from docstrings, and links to files outside docs/."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe

ROOT = Path(__file__).resolve().parent.parent
_OUTSIDE = re.compile(r"\]\((?:\.\./)+((?:src|tests|bench|README|CHANGELOG|CONTRIBUTING|LICENSE)[^)\s]*)\)")

_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the page of the API reference; each name is documented by its docstring."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference.md", content=reference()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links at files outside docs/ to the repository, and links at folders to their first page."""
    markdown = re.sub(r"\]\((?:\.\./)*decisions/?\)", "](architecture.md)", markdown)
    return _OUTSIDE.sub(lambda match: f"]({config['repo_url']}/blob/main/{match[1]})", markdown)


def reference() -> str:
    """Public names of `import peasy`, then the packages with public names of their own."""
    sys.path.insert(0, str(ROOT / "src"))
    import peasy

    names = peasy._public_names()
    lines = ["# Python reference\n", "The names of `import peasy`. All of them are imported on first use.\n"]
    for name in sorted((name for name, module in names.items() if module != "peasy"), key=str.lower):
        value = getattr(peasy, name)
        is_module = isinstance(value, ModuleType)
        lines.append(f"::: {value.__name__}\n" if is_module else f"::: {value.__module__}.{value.__qualname__}\n")
    for package in sorted(name for name, module in names.items() if module == "peasy"):
        lines.append(f"## peasy.{package}\n\n::: peasy.{package}\n    options:\n      show_root_heading: false\n")
    return "\n".join(lines)


class FenceDoctests(griffe.Extension):
    """Show the examples of docstrings as code: Markdown would take `>>>` for a quotation."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Put a fence around each example."""
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(lambda match: f"```pycon\n{match[0]}\n```", obj.docstring.value)
