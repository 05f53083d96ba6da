"""Classification heads in config.json: labels, single or several per text, for texts or for tokens."""

from dataclasses import replace

from peasy.checkpoint.huggingface.family import ConfigFields
from peasy.nn.config import ClassifierConfig

_LEVELS = {"ForSequenceClassification": "text", "ForTokenClassification": "token"}
_MAX_LABELS = 100_000
OF_LAST_TOKEN = ClassifierConfig((), pooling="last", bias=False)
"""Head of a decoder for texts."""


def read_classifier(fields: ConfigFields, head: ClassifierConfig) -> ClassifierConfig | None:
    """Read the classification head named in `architectures`, None = none; `head` is that of the family's texts."""
    names = fields.data.get("architectures")
    architecture = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    level = next((level for ending, level in _LEVELS.items() if architecture.endswith(ending)), None)
    if level is None:
        return None
    labels = _read_labels(fields)
    if level == "token":
        return ClassifierConfig(labels, "token")
    return replace(head, labels=labels, multi_label=fields.data.get("problem_type") == "multi_label_classification")


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


def write_labels(head: ClassifierConfig | None) -> dict[str, object]:
    """Return the fields of a classification head."""
    if head is None:
        return {}
    problem = "multi_label_classification" if head.multi_label else None
    return {
        "id2label": {str(id): label for id, label in enumerate(head.labels)},
        "label2id": {label: id for id, label in enumerate(head.labels)},
        **({"problem_type": problem} if problem else {}),
    }


def architecture_ending(head: ClassifierConfig | None, without: str) -> str:
    """Return the ending of the architecture's name for this head; `without` that of a model without one."""
    return without if head is None else next(ending for ending, level in _LEVELS.items() if level == head.level)
