"""Default values of flags from the environment, ./peasy.toml and the user's config file.

A config file has global flags at the top and one table per command:

    no-color = true
    [explain]
    decimals = 2
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection, Token
from cyclopts.config import Env

from peasy.cli.command import Flags
from peasy.cli.command_table import COMMANDS
from peasy.config import load
from peasy.errors import InvalidInput, did_you_mean


def config_dir() -> Path:
    """Return the folder of the user's config file."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "peasy"


def config_sources() -> list[Any]:
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
        command = commands[0] if commands else ""
        self._fill(arguments, tables.get(command, {}), prefix=f"{self.path}: {command}.")
        self._fill(arguments, global_flags, prefix=f"{self.path}: ")

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {key.replace("_", "-"): value for key, value in load(self.path).items()}
        flags = [field.name.replace("_", "-") for field in dataclasses.fields(Flags)]
        commands = [command.name for command in COMMANDS]
        for key, value in data.items():
            known = commands if isinstance(value, dict) else flags
            if key not in known:
                hint = did_you_mean(key, known) or f"Known keys: {', '.join(known)}."
                raise InvalidInput(f"{self.path}: {key}: unknown key.", hint=hint)
        return {k: v for k, v in data.items() if k in flags}, {k: v for k, v in data.items() if k in commands}

    def _fill(self, arguments: ArgumentCollection, settings: dict[str, Any], prefix: str) -> None:
        by_name = {name: argument for argument in arguments for name in argument.names}
        for key, value in settings.items():
            flag = "--" + key.replace("_", "-")
            if flag not in by_name:
                hint = did_you_mean(key, [name.lstrip("-") for name in by_name])
                raise InvalidInput(f"{prefix}{key}: unknown key.", hint=hint)
            if not by_name[flag].tokens:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                by_name[flag].append(Token(keyword=f"{prefix}{key}", value=text, source=str(self.path)))
