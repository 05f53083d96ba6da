"""Where a flag's value comes from when it is not typed: environment, ./peasy.toml, the user's config file.

A settings file has the flags everywhere at the top and a table per verb:

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

from peasy.cli.door import Flags
from peasy.cli.verb import VERBS
from peasy.config import load
from peasy.errors import InvalidInput, did_you_mean


def config_home() -> Path:
    """The folder of the user's own settings."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "peasy"


def sources() -> list[Any]:
    """In the order in which they win; the flag itself stands before all of them, the default after."""
    environment = Env("PEASY_", command=False, show=False)
    return [environment, SettingsFile(Path("peasy.toml")), SettingsFile(config_home() / "config.toml")]


def spoken() -> list[str]:
    """What there is besides the command line: settings files by path, variables by name."""
    files = [source.path for source in sources() if isinstance(source, SettingsFile) and source.path.is_file()]
    return [*map(str, files), *(name for name in sorted(os.environ) if name.startswith("PEASY_"))]


@dataclasses.dataclass(frozen=True)
class SettingsFile:
    """A TOML file that speaks for the flags which nobody has set so far."""

    path: Path

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Fill in what is still open; cyclopts calls this for each source in turn."""
        if not self.path.is_file():
            return
        everywhere, tables = self._read()
        verb = commands[0] if commands else ""
        self._fill(arguments, tables.get(verb, {}), where=f"{self.path}: {verb}.")
        self._fill(arguments, everywhere, where=f"{self.path}: ")

    def _read(self) -> tuple[dict[str, Any], dict[str, Any]]:
        data = {key.replace("_", "-"): value for key, value in load(self.path).items()}
        flags = [field.name.replace("_", "-") for field in dataclasses.fields(Flags)]
        verbs = [verb.name for verb in VERBS]
        for key, value in data.items():
            known = verbs if isinstance(value, dict) else flags
            if key not in known:
                hint = did_you_mean(key, known) or f"Known here: {', '.join(known)}."
                raise InvalidInput(f"{self.path}: {key}: there is no such key.", hint=hint)
        return {k: v for k, v in data.items() if k in flags}, {k: v for k, v in data.items() if k in verbs}

    def _fill(self, arguments: ArgumentCollection, settings: dict[str, Any], where: str) -> None:
        by_name = {name: argument for argument in arguments for name in argument.names}
        for key, value in settings.items():
            flag = "--" + key.replace("_", "-")
            if flag not in by_name:
                hint = did_you_mean(key, [name.lstrip("-") for name in by_name])
                raise InvalidInput(f"{where}{key}: there is no such key.", hint=hint)
            if not by_name[flag].tokens:
                word = str(value).lower() if isinstance(value, bool) else str(value)
                by_name[flag].append(Token(keyword=f"{where}{key}", value=word, source=str(self.path)))
