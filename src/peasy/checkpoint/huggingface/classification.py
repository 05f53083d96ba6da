"""Classification heads in config.json: labels, single or several per text, for texts or for tokens."""

from collections.abc import Mapping
from dataclasses import field

from peasy.checkpoint.huggingface.config_fields import ConfigFields, WeightNames
from peasy.checkpoint.huggingface.config_table import Settings, drop
from peasy.checkpoint.huggingface.weight_map import WeightRule, module_rules
from peasy.models.config import DecoderConfig
from peasy.parameters import Record

_LEVELS = {"ForSequenceClassification": "text", "ForTokenClassification": "token"}
_MAX_LABELS = 100_000


class ClassifierFields(Record):
    """Classification head named in `architectures`; `text` and `token`: settings of the family's heads for either."""

    text: Mapping[str, object]
    token: Mapping[str, object] = field(default_factory=dict)

    def read(self, fields: ConfigFields, weights: WeightNames, settings: Settings) -> None:
        """Read the labels; the head of a decoder replaces its LM head."""
        names = fields.data.get("architectures")
        architecture = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
        level = next((level for ending, level in _LEVELS.items() if architecture.endswith(ending)), None)
        if level is None:
            return
        several = fields.data.get("problem_type") == "multi_label_classification"
        own = {"multi_label": several, **self.text} if level == "text" else self.token
        head = {"labels": _read_labels(fields), "level": level, **own}
        settings |= {f"classifier.{name}": value for name, value in head.items()}
        if settings["kind"] == "decoder":
            drop(settings, "lm_head")

    def write(self, settings: Settings) -> dict[str, object]:
        """Return the fields of the labels."""
        if "classifier.labels" not in settings:
            return {}
        labels = settings["classifier.labels"]
        return {
            "id2label": {str(id): label for id, label in enumerate(labels)},
            "label2id": {label: id for id, label in enumerate(labels)},
            **({"problem_type": "multi_label_classification"} if settings["classifier.multi_label"] else {}),
        }


OF_LAST_TOKEN = ClassifierFields({"pooling": "last", "bias": False})
"""Heads of a decoder: for texts, at the last token; for tokens."""


def classifier_rules(config: DecoderConfig) -> tuple[WeightRule, ...]:
    """Return the rules of a decoder's head, which has another name for tokens than for texts."""
    of_tokens = config.classifier is not None and config.classifier.level == "token"
    return tuple(module_rules("", "classifier.", {"classifier" if of_tokens else "score": "output"}))


def _read_labels(fields: ConfigFields) -> tuple[str, ...]:
    """Read id2label, or the number of labels, 2 by default, as in transformers."""
    names = fields.data.get("id2label")
    if names is None:
        count = fields.integer("num_labels", None, maximum=_MAX_LABELS) or fields.integer(
            "_num_labels", 2, maximum=_MAX_LABELS
        )
        return tuple(f"LABEL_{id}" for id in range(count))
    labels = [names.get(str(id)) for id in range(len(names))] if isinstance(names, dict) else []
    if not 0 < len(labels) <= _MAX_LABELS or any(not isinstance(label, str | int) for label in labels):
        raise fields.invalid("id2label", "an object from ids 0, 1, 2 ... to names of labels")
    return tuple(map(str, labels))
