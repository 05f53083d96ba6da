"""Table of all commands, read from `commands.toml`; each has one function in a module of this package."""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from keyword import iskeyword


@dataclass(frozen=True)
class Command:
    """Command: name, the line in `peasy --help`, and the group it is listed in.

    `help` are the examples and details of its help text, below the first paragraph of its function's docstring.
    `module` is the module of its function, if that does not have its name. `extra_formats` are output formats of its
    result in addition to those of every result. A command with `subcommands` also works without one: `peasy runs`
    lists the runs. `parent` is the command that a subcommand belongs to.
    """

    name: str
    summary: str
    group: str = ""
    help: str = ""
    module: str = ""
    extra_formats: Sequence[str] = ()
    subcommands: "tuple[Command, ...]" = ()
    parent: str = ""

    @property
    def path(self) -> str:
        """Name as typed after `peasy`.

        >>> Command("show", "", parent="runs").path
        'runs show'
        """
        return f"{self.parent} {self.name}".strip()

    @property
    def entry_point(self) -> str:
        """Import path of its function, imported only when the command is used.

        >>> Command("look", "").entry_point, Command("import", "", module="inference").entry_point
        ('peasy.cli.look:look', 'peasy.cli.inference:import_')
        >>> Command("show", "", module="models", parent="runs").entry_point
        'peasy.cli.models:runs_show'
        """
        function = self.path.replace(" ", "_") + "_" * iskeyword(self.name)
        return f"peasy.cli.{self.module or self.name}:{function}"


def _read_commands() -> Iterator[Command]:
    table = tomllib.loads((resources.files("peasy.cli") / "commands.toml").read_text(encoding="utf-8"))
    for name, row in table.items():
        rows = row.pop("subcommands", {}).items()
        inner = (Command(sub, module=row.get("module", name), parent=name, **fields) for sub, fields in rows)
        yield Command(name, subcommands=tuple(inner), **row)


COMMANDS = tuple(_read_commands())
"""In the order of `peasy --help`."""


def all_commands(commands: Sequence[Command]) -> Iterator[Command]:
    """Yield the commands, each followed by its subcommands."""
    for command in commands:
        yield command
        yield from command.subcommands


def find_command(args: Sequence[str], commands: Sequence[Command]) -> Command | None:
    """Return the command or subcommand that a command line starts with.

    >>> [getattr(find_command(line.split(), COMMANDS), "path", None) for line in ("runs show fox", "runs", "fox")]
    ['runs show', 'runs', None]
    """
    found = next((command for command in commands if args and command.name == args[0]), None)
    if found is None:
        return None
    return next((sub for sub in found.subcommands if list(args[1:2]) == [sub.name]), found)
