"""Model family: names of its architectures, config table and weight map."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import ConfigPart, TokenIdFields, nest, settings_of
from peasy.checkpoint.huggingface.weight_map import WeightMap
from peasy.models.config import ModelConfig, read_config
from peasy.parameters import Record


def architectures(language_model: str, prefix: str) -> tuple[str, ...]:
    """Return the usual classes of a family in transformers: with an LM head, without a head, for texts, for tokens."""
    heads = ("Model", "ForSequenceClassification", "ForTokenClassification")
    return (language_model, *(f"{prefix}{head}" for head in heads))


class ModelFamily(Record):
    """One model family as data.

    `architectures` are its class names in transformers, the one with a language-model head first. `settings`: those
    that all its models share, by dotted path; `table`: the others. A model without an LM head is stored without the
    `prefix`. `ignored`: fields of config.json without effect. `has_custom_code`: published files also name code of
    their own, from the time before the family was part of transformers; it is not run. `aliases`: names of weights in
    memory, where they differ from those in files. `model_type`: in config.json; by default its name.

    A family supports a model if writing and reading its config gives the same config.
    """

    name: str
    architectures: tuple[str, ...]
    settings: Mapping[str, object]
    table: Sequence[ConfigPart]
    weight_map: Callable[[Any], WeightMap]
    prefix: str = ""
    special_tokens: TokenIdFields = field(default_factory=TokenIdFields)
    ignored: str = ""
    has_custom_code: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    model_type: str = ""

    @property
    def kind(self) -> str:
        """Kind of its models, such as decoder."""
        return str(self.settings["kind"])

    def read_config(self, fields: ConfigFields, weights: WeightNames) -> ModelConfig:
        """Convert a config of this family to peasy's."""
        fields.ignore(self.ignored)
        settings = dict(self.settings)
        for part in (self.special_tokens, *self.table):
            part.read(fields, weights, settings)
        return read_config(nest(settings))

    def write_config(self, config: ModelConfig) -> dict[str, object]:
        """Convert peasy's config to one of this family."""
        settings = settings_of(config)
        return {
            name: value for part in (self.special_tokens, *self.table) for name, value in part.write(settings).items()
        }

    def architecture(self, config: Any) -> str:
        """Return the class name in transformers: by the classification head, the lack of an LM head, or the pooler."""
        classifier, ending = getattr(config, "classifier", None), ""
        if classifier is not None:
            ending = "ForSequenceClassification" if classifier.level == "text" else "ForTokenClassification"
        elif config.lm_head is None:
            ending = "Model"
        elif getattr(config, "pooler", False):
            ending = "ForPreTraining"
        return next((name for name in self.architectures if name.endswith(ending)), self.architectures[0])
