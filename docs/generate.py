"""Write the pages that list things, from the things themselves; `--check` only says which pages are stale.

The map comes from the cards of the rooms and the floors from the contract that import-linter holds,
the command line from its own help, the picture from `peasy explain`. Nothing here is kept by hand.
"""

import ast
import inspect
import io
import re
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "peasy"
BY_HAND = "<!-- Written by `make docs`: change the source, not this page. -->\n\n"


def card(room: Path) -> str:
    """The docstring that opens a room."""
    return ast.get_docstring(ast.parse(room.read_text(encoding="utf-8"))) or ""


def floors() -> list[list[str]]:
    """The rooms, floor by floor from the top, as the contract has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["id"] == "floors")
    named = [[room.strip(" ()") for room in layer.split("|")] for layer in layers]
    return [standing for floor in named if (standing := [room for room in floor if home(room)])]


def home(room: str) -> Path | None:
    """The file that holds a room's card, if the room is built."""
    places = (SOURCE / room / "__init__.py", SOURCE / f"{room}.py")
    return next((place for place in places if place.exists()), None)


def headline(room: str) -> str:
    """The first line of the card."""
    place = home(room)
    return card(place).partition("\n")[0] if place else ""


def house_map() -> str:
    """The README's map: one line per room, from the doors down."""
    names = [room for floor in floors() for room in floor]
    width = max(map(len, names)) + 2
    return "\n".join(f"{room:<{width}}{headline(room)}" for room in names)


def readme() -> str:
    """The README with a fresh map in it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(<!-- map -->\n```text\n).*?(```)", lambda m: f"{m[1]}{house_map()}\n{m[2]}", text, flags=re.DOTALL)


def architecture() -> str:
    """The floors, then each room's card."""
    lines = ["# The house\n", BY_HAND + "Each room imports only from floors below its own.\n"]
    lines += ["```text", *(" | ".join(floor) for floor in floors()), "```\n"]
    for room in (room for floor in floors() for room in floor):
        place = home(room)
        assert place is not None
        first, _, rest = card(place).partition("\n")
        lines += [f"## {room}\n", f"{first}\n"]
        if place.name == "__init__.py":
            body = [line for line in rest.strip().split("\n\n")[0].splitlines() if line]
            lines += [*(f"- {line}" for line in body), "", *_files(place.parent), ""]
    return "\n".join(lines).rstrip() + "\n"


def _files(room: Path) -> list[str]:
    files = [path for path in sorted(room.glob("*.py")) if path.name != "__init__.py"]
    return ["| file | |", "|---|---|", *(f"| `{path.name}` | {_first_line(path)} |" for path in files)] if files else []


def _first_line(path: Path) -> str:
    return card(path).partition("\n")[0].replace("|", "\\|")


def command_line() -> str:
    """Every verb with its own help, as the terminal shows it at 80 columns."""
    from peasy.cli.command_table import COMMANDS

    lines = ["# The command line\n", BY_HAND + "`peasy VERB --help` shows the same.\n", _block("peasy --help", "")]
    built = [verb for verb in COMMANDS if find_spec(verb.entry_point.partition(":")[0])]
    lines += [f"## {verb.name}\n\n{_block(f'peasy {verb.name} --help', verb.name)}" for verb in built]
    return "\n".join(lines).rstrip() + "\n"


def _block(command: str, verb: str) -> str:
    from rich.console import Console

    from peasy.cli.app import build_cli

    out = io.StringIO()
    build_cli(verb).help_print([verb] if verb else [], console=Console(file=out, width=80, color_system=None))
    shown = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    return f"```text\n$ {command}\n{shown}\n```\n"


def python_names() -> str:
    """The public names, each with its signature and what it is."""
    import peasy

    lines = ["# The names of `import peasy`\n", BY_HAND + "Each is imported when it is first asked for.\n"]
    for name in sorted(peasy._MODULE_OF_NAME, key=str.lower):
        thing = getattr(peasy, name)
        first = (inspect.getdoc(thing) or "").partition("\n")[0]
        lines += [f"## `{name}`\n", f"{first} Lives in `{peasy._MODULE_OF_NAME[name]}`.\n"]
        if inspect.isfunction(thing):
            lines += [f"```text\n{_signature(thing)}\n```\n"]
    return "\n".join(lines).rstrip() + "\n"


def _signature(function: Callable[..., object]) -> str:
    given = inspect.signature(function)
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in given.parameters.values()]
    line = f"{function.__name__}{given.replace(parameters=bare, return_annotation=inspect.Signature.empty)}"
    return textwrap.fill(line, 96, subsequent_indent=" " * (len(function.__name__) + 1), break_on_hyphens=False)


def configuration() -> str:
    """Every flag that is the same on all verbs, with its name in the environment and in settings files."""
    from peasy.cli.app import build_cli

    arguments = build_cli().assemble_argument_collection(parse_docstring=True)
    rows = [(a.names[0], a.names[0].strip("-"), a.parameter.help or "") for a in arguments if a.show]
    lines = [
        "# Settings\n",
        BY_HAND + "A flag wins over the environment, the environment over `./peasy.toml`, that over",
    ]
    lines += [
        "`~/.config/peasy/config.toml`, and that over the default. A misspelt key is refused by name. In a settings"
    ]
    lines += ["file a table named after a verb speaks to that verb alone and may set its own flags too.\n"]
    lines += [
        "```toml\nno-color = true\n\n[explain]\ndecimals = 2\n```\n",
        "| flag | environment | file | |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{f}` | `PEASY_{key.upper().replace('-', '_')}` | `{key}` | {told} |" for f, key, told in rows]
    return "\n".join(lines) + "\n"


def axes() -> str:
    """The steps of a small worked case with their axes, as the formula itself names them."""
    import numpy as np

    from peasy import attend_with_weights

    x, w = np.eye(4), np.eye(4)
    steps = attend_with_weights(x, w, w, w, w, heads=2)
    lines = [
        "# Steps and axes\n",
        BY_HAND + "Multi-head attention as peasy names it, from inputs to output. Within one",
    ]
    lines += ["calculation an axis of one name has one size; `batch` may stand before all of them.\n"]
    lines += ["| step | axes | says |", "|---|---|---|"]
    lines += [
        f"| `{step.name}` | {' '.join(step.axes_of(array))} | {step.description} |"
        for step, array in steps.step_arrays()
    ]
    return "\n".join(lines) + "\n"


def covered() -> dict[str, dict[str, list[str] | str]]:
    """The rows of the coverage, by number."""
    rows: dict[str, dict[str, list[str] | str]] = tomllib.loads(_coverage_text())["rows"]
    return rows


def _coverage_text() -> str:
    return (ROOT / "docs" / "coverage.toml").read_text(encoding="utf-8")


def coverage() -> str:
    """What the documents describe, each with the command, the test and the page that show it."""
    documents: dict[str, str] = tomllib.loads(_coverage_text())["documents"]
    lines = ["# What the documents describe, and where it is shown\n"]
    lines += [BY_HAND.replace("the source", "`docs/coverage.toml`") + "Each command can be run as it stands; each test"]
    lines += ["is part of `make test`, and each page runs as one.\n"]
    for document, title in documents.items():
        lines += [f"## {document} · {title}\n", "| | what | command | test | page |", "|---|---|---|---|---|"]
        lines += [_coverage_row(number, row) for number, row in covered().items() if number.startswith(f"{document}.")]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def _coverage_row(number: str, row: dict[str, list[str] | str]) -> str:
    commands = "<br>".join(f"`{each}`" for each in row["commands"])
    tests = "<br>".join(f"[{each.partition('::')[2]}](../{each.partition('::')[0]})" for each in row["tests"])
    pages = "<br>".join(f"[{Path(each).stem}](tour/{each})" for each in row["pages"])
    return f"| {number} | {row['what']} | {commands} | {tests} | {pages} |"


def picture() -> str:
    """The README's picture, drawn by peasy."""
    from peasy.cli.app import run

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "i-love-ai.svg"
        assert run(["explain", "i-love-ai", "--out", str(file), "--quiet"]) == 0
        return file.read_text(encoding="utf-8")


PAGES: dict[str, Callable[[], str]] = {
    "README.md": readme,
    "docs/architecture.md": architecture,
    "docs/axes.md": axes,
    "docs/cli.md": command_line,
    "docs/configuration.md": configuration,
    "docs/coverage.md": coverage,
    "docs/python.md": python_names,
    "docs/pictures/i-love-ai.svg": picture,
}


def stale() -> list[str]:
    """The pages that no longer say what is so."""
    return [name for name, write in PAGES.items() if not _says(ROOT / name, write())]


def _says(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def main() -> None:
    """Write what is stale; with `--check`, only name it and fail."""
    for name in (old := stale()):
        print(f"{name} is stale: run `make docs`" if "--check" in sys.argv else f"wrote {name}")
        if "--check" not in sys.argv:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    sys.exit(1 if old and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
