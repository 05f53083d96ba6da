"""Default values of flags from the environment, ./peasy.toml and the user's config file.

A config file has global flags at the top, one table per command, and tables in it for subcommands:

    no-color = true
    [explain]
    decimals = 2
    [runs.rm]
    yes = true
"""

import dataclasses
import os
from pathlib import Path

from cyclopts import App, ArgumentCollection, Token
from cyclopts.config import Env
from platformdirs import user_config_path

from peasy.cli.command import Flags
from peasy.cli.command_table import COMMANDS
from peasy.config import JsonDict, load
from peasy.errors import InvalidInput, did_you_mean


def config_dir() -> Path:
    """Return the folder of the user's config file."""
    return user_config_path("peasy", appauthor=False)


def config_sources() -> "list[Env | ConfigFile]":
    """Return the config sources by precedence; a flag on the command line overrides all of them."""
    environment = Env("PEASY_", command=False, show=False)
    return [environment, ConfigFile(Path("peasy.toml")), ConfigFile(config_dir() / "config.toml")]


def active_sources() -> list[str]:
    """Return the paths of config files and the names of environment variables in use."""
    files = [source.path for source in config_sources() if isinstance(source, ConfigFile) and source.path.is_file()]
    return [*map(str, files), *(name for name in sorted(os.environ) if name.startswith("PEASY_"))]


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """TOML config file: sets flags that no source of higher precedence has set."""

    path: Path

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Set the flags that are still unset; called by cyclopts for each source in turn."""
        if not self.path.is_file():
            return
        global_flags, tables = self._read()
        table = tables.get(commands[0] if commands else "", {})
        if len(commands) > 1:
            self._fill(arguments, table.get(commands[1], {}), prefix=f"{self.path}: {'.'.join(commands)}.")
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        self._fill(arguments, own, prefix=f"{self.path}: {''.join(commands[:1])}.")
        self._fill(arguments, global_flags, prefix=f"{self.path}: ")

    def _read(self) -> tuple[JsonDict, JsonDict]:
        data = _with_dashes(load(self.path))
        flags = [field.name.replace("_", "-") for field in dataclasses.fields(Flags)]
        commands = {command.name: command for command in COMMANDS}
        self._check_keys(data, flags, list(commands), "")
        tables = {key: _with_dashes(value) for key, value in data.items() if key in commands}
        for name, table in tables.items():
            subcommands = [subcommand.name for subcommand in commands[name].subcommands]
            if subcommands:  # its own flags would not fit its subcommands
                self._check_keys(table, flags, subcommands, f"{name}.")
        return {k: v for k, v in data.items() if k in flags}, tables

    def _check_keys(self, table: JsonDict, flags: list[str], subtables: list[str], prefix: str) -> None:
        for key, value in table.items():
            known = subtables if isinstance(value, dict) else flags
            if key not in known:
                hint = did_you_mean(key, known) or f"Known keys: {', '.join(known)}."
                raise InvalidInput(f"{self.path}: {prefix}{key}: unknown key.", hint=hint)

    def _fill(self, arguments: ArgumentCollection, settings: JsonDict, prefix: str) -> None:
        by_name = {name: argument for argument in arguments for name in argument.names}
        for key, value in settings.items():
            flag = "--" + key.replace("_", "-")
            if flag not in by_name:
                hint = did_you_mean(key, [name.lstrip("-") for name in by_name])
                raise InvalidInput(f"{prefix}{key}: unknown key.", hint=hint)
            if not by_name[flag].tokens:
                for item in value if isinstance(value, list) else [value]:
                    text = str(item).lower() if isinstance(item, bool) else str(item)
                    by_name[flag].append(Token(keyword=f"{prefix}{key}", value=text, source=str(self.path)))


def _with_dashes(table: JsonDict) -> JsonDict:
    return {key.replace("_", "-"): value for key, value in table.items()}
