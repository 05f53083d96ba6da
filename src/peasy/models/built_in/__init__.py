"""Built-in models: one checkpoint folder each with its card, and the training recipes (`recipes.toml`).

May import: config, errors. Imported by: commands.
In: the name of a built-in model. Out: its recipe.
"""

from dataclasses import field
from functools import cache
from pathlib import Path

from peasy import config
from peasy.config import JsonDict
from peasy.errors import NotFound, did_you_mean
from peasy.parameters import Record

CARD_FILE = "card.json"


class BuiltinModelRecipe(Record):
    """Training recipe of a built-in model: by steps, not by time, so that training is reproducible."""

    kind: str
    data: str
    steps: int
    description: str
    limitations: str
    seed: int = 0
    tracked_sentence: str | None = None
    settings: JsonDict = field(default_factory=dict)

    def command(self) -> str:
        """Return the command that trains it.

        >>> BuiltinModelRecipe("gpt", "stories", 9, "", "", settings={"model": {"dropout": 0.1}}).command()
        'peasy train gpt --data stories --steps 9 --seed 0 --set model.dropout=0.1'
        """
        base = f"peasy train {self.kind} --data {self.data} --steps {self.steps} --seed {self.seed}"
        return " ".join([base, *(f"--set {path}={value}" for path, value in config.flatten(self.settings).items())])


@cache
def recipes() -> dict[str, BuiltinModelRecipe]:
    """Return the recipes of all built-in models by name."""
    file = Path(__file__).with_name("recipes.toml")
    return config.read(dict[str, BuiltinModelRecipe], config.load(file)["models"], file.name)


def recipe(name: str) -> BuiltinModelRecipe:
    """Return the recipe of one built-in model; an unknown name is an error."""
    if name not in recipes():
        hint = did_you_mean(name, recipes()) or f"There are {', '.join(recipes())}."
        raise NotFound(f'No built-in model "{name}".', hint=hint)
    return recipes()[name]
