"""Attention over training: maps of the tracked sentence at every checkpoint of a run."""

from pathlib import Path

from peasy.checkpoint.paths import resolve_model
from peasy.commands.result import JsonDict, RecordResult, Result
from peasy.errors import NotFound
from peasy.inspection.results import AttentionHistory, CheckpointAttention, Tokens
from peasy.inspection.words import label_ids
from peasy.nn.module_path import ModulePath
from peasy.views.document import Document
from peasy.views.inspection import attention_history_document


class AttentionHistoryResult(RecordResult, AttentionHistory):
    """Attention of a run's tracked sentence at every checkpoint, first to last."""

    document = attention_history_document


def attention_history(run: str | Path) -> AttentionHistoryResult:
    """Return the attention of a run's tracked sentence at every checkpoint, first to last."""
    from peasy.training.attention_snapshots import read_snapshots

    folder = Path(run)
    if not (folder / "attention").is_dir():
        checkpoint = resolve_model(run, offline=True).folder
        parents = (checkpoint, *checkpoint.parents[:2])
        folder = next((parent for parent in parents if (parent / "attention").is_dir()), checkpoint)
    records = read_snapshots(folder)
    if not records:
        hint = "Attention is recorded at every checkpoint, only for models that have attention."
        raise NotFound(f"{run} has recorded no attention.", hint=hint)
    sentence = records[-1].sentence
    tokens = _tokens(sentence.ids, sentence.pieces)
    source = _tokens(sentence.source, sentence.source_pieces) if sentence.source else None
    frames = []
    for record in (record for record in records if record.sentence == sentence):
        weights = {_parse_module_path(name): array.numpy() for name, array in record.weights.items()}
        frames.append(CheckpointAttention(record.step, weights))
    return AttentionHistoryResult(folder.name, source or tokens, tokens if source else None, tuple(frames))


class ModuleHistoryResult(Result, eq=False):
    """Weights of one attention module at every checkpoint; `module_paths` lists all recorded modules."""

    history: AttentionHistory
    module_paths: tuple[str, ...]
    module_path: str

    def document(self) -> Document:
        """Heads from top to bottom, checkpoints from left to right."""
        return attention_history_document(self.history, _parse_module_path(self.module_path))

    def data(self) -> JsonDict:
        """Run, text, steps and recorded modules; the weights themselves are in the document."""
        history, heads = self.history, self.history.checkpoints[-1].weights[_parse_module_path(self.module_path)]
        data = {"run": history.run, "text": history.tokens.text, "steps": [at.step for at in history.checkpoints]}
        data |= {"module_paths": list(self.module_paths), "module_path": self.module_path}
        return data | {"heads": len(heads), "caveat": history.caveat}

    def __repr__(self) -> str:
        return f"ModuleHistoryResult({self.history.run}: {self.module_path})"


def module_attention_history(run: str | Path, module_path: str | None = None) -> ModuleHistoryResult:
    """Return one attention module of a run's tracked sentence at every checkpoint; by default the last layer's."""
    history = attention_history(run)
    modules = tuple(f"{path.stack}.{path.layer}.{path.part}" for path in history.checkpoints[-1].weights)
    if module_path is not None and module_path not in modules:
        raise NotFound(f'There is no attention "{module_path}".', hint=f"Choose one of {', '.join(modules)}.")
    return ModuleHistoryResult(history, modules, module_path or modules[-1])


def _tokens(ids: tuple[int, ...], pieces: tuple[str, ...]) -> Tokens:
    return label_ids(ids, pieces, "".join(pieces).replace("·", " ").strip())


def _parse_module_path(name: str) -> ModulePath:
    stack, layer, part = name.split(".")
    return ModulePath(stack, int(layer), part)
