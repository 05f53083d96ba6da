"""`prove`: two roads to one truth, on somebody's model or on somebody's own attention."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint.hub import Ask
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.parts import need
from peasy.proof.doctor.diagnosis import Diagnosis
from peasy.proof.verdict import Proof
from peasy.views.document import Document
from peasy.views.proof import diagnosis_document, diagnosis_sentence, proof_document, proof_sentence
from peasy.workbench.load import LoadedModel, load
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.models.protocol import Model
    from peasy.proof.road import Text

PROMPTS = (
    "The pizza came out of the oven and it tasted good.",
    "Your journey starts with one step.",
    "I love AI.",
)
"""What is read where nobody gives a text."""
LENGTHS = (17, 9, 1)
"""How many ids are drawn for a model without a tokenizer."""
MOST = 128
"""So many tokens of a text are enough to tell two roads apart, and few enough for a large model."""

_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[\w.]*))?", re.DOTALL)


@dataclass(frozen=True, repr=False)
class ProveResult(Result):
    """A verdict for each equality. `passed` is true when none fails."""

    proof: Proof

    @property
    def passed(self) -> bool:
        """Whether no equality fails."""
        return self.proof.passed

    @property
    def verdict(self) -> str:
        """All that was found, in one sentence."""
        return proof_sentence(self.proof)

    def document(self) -> Document:
        """Every equality with its distance, and where two roads part."""
        return proof_document(self.proof)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        return {"passed": self.passed, "verdict": self.verdict, **asdict(self.proof)}

    def __repr__(self) -> str:
        return f"ProveResult({self.proof.model}: {self.verdict})"


@dataclass(frozen=True, repr=False)
class DoctorResult(Result):
    """What the doctor says of a function or module. `passed` is true when nothing is wrong; cautions do not count."""

    diagnosis: Diagnosis

    @property
    def passed(self) -> bool:
        """Whether it computes attention."""
        return self.diagnosis.passed

    @property
    def verdict(self) -> str:
        """What the doctor says, in one sentence."""
        return diagnosis_sentence(self.diagnosis)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """The mistakes by their names."""
        return self.diagnosis.mistakes

    def document(self) -> Document:
        """Mistakes with what to write instead, and the conventions it keeps."""
        return diagnosis_document(self.diagnosis)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        told = {"passed": self.passed, "verdict": self.verdict, "mistakes": list(self.mistakes)}
        return told | {"cautions": list(self.diagnosis.cautions)} | asdict(self.diagnosis)

    def __repr__(self) -> str:
        return f"DoctorResult({self.verdict})"


def prove(
    what: Any,
    prompts: str | Sequence[str] | None = None,
    *,
    call: str | None = None,
    tokens: int = MOST,
    seconds: float = 60.0,
    seed: int = 0,
    device: str = "auto",
    offline: bool = False,
    ask: Ask | None = None,
    tell: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ProveResult | DoctorResult:
    """Prove a model on your own texts, or have your own attention examined.

    A model (its name, or what `load` gave): cached = uncached, alone = in a batch, padded = unpadded, whole = in
    chunks, fused = formula, packed near full, exported = original; each with its measured distance. At most `tokens`
    tokens of each text are read.

    A function or module ("file.py:name", or the thing itself): compared with the formula on seeded inputs; a mistake is
    called by its name, a convention is only mentioned. How to call it is found from its signature, or said:
    `call="attention(q, k, v, mask)"`. A file runs in a process of its own for at most `seconds`; `tell` hears of it.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
    ...     weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    ...     return weights @ v
    >>> prove(attention).mistakes
    ('scale d_k instead of its root',)
    """
    if isinstance(what, str | Path) and (named := _FILE.fullmatch(str(what))):
        return _examine_file(Path(named["file"]), named["name"] or "", call, seconds, seed, tell)
    if _is_own(what):
        return _examine(what, call, seed)
    if call is not None:
        raise UsageError("--call says how a function of yours is called; a model needs none.")
    loaded = _loaded(what, device, offline, ask)
    texts, notes = _texts(loaded, [prompts] if isinstance(prompts, str) else prompts, tokens, seed)
    from peasy.proof.equality import prove_model

    return ProveResult(prove_model(loaded.model, texts, name=loaded.name, notes=notes, progress=progress))


def _is_own(what: Any) -> bool:
    """Whether this is somebody's function or module, and no model of ours or of transformers."""
    if isinstance(what, str | Path | LoadedModel) or hasattr(what, "save_pretrained") or not callable(what):
        return False
    return not hasattr(what, "learns")


def _loaded(what: Any, device: str, offline: bool, ask: Ask | None) -> LoadedModel:
    need("torch")
    if isinstance(what, LoadedModel):
        return what
    if hasattr(what, "learns"):
        return LoadedModel(type(what).__name__, what, None)
    return load(what, device=device, offline=offline, ask=ask)


def _examine(thing: Any, call: str | None, seed: int) -> DoctorResult:
    from peasy.proof.doctor.examine import examine
    from peasy.proof.doctor.subject import Subject
    from peasy.proof.doctor.way import parse_call

    return DoctorResult(examine(Subject(thing), call=parse_call(call) if call else None, seed=seed))


def _examine_file(
    file: Path, name: str, call: str | None, seconds: float, seed: int, tell: Callable[[str], None] | None
) -> DoctorResult:
    from peasy.proof.doctor.examine import examine
    from peasy.proof.doctor.remote import Limits, Remote
    from peasy.proof.doctor.way import parse_call

    if not file.is_file():
        raise NotFound(f"There is no file {file}.")
    way = parse_call(call) if call else None
    name = name or (way.name if way else "")
    if not name:
        there = _defined(file)
        raise UsageError(
            f"Which function of {file}?", hint="\n".join(f"peasy prove {file}:{each}" for each in there[:8])
        )
    limits = Limits(seconds=seconds)
    if tell is not None:
        tell(f"Running {file} in a process of its own: it is your code, and gets {limits.says()}.")
    with Remote(file, name, limits) as patient:
        return DoctorResult(examine(patient, call=way, seed=seed))


def _defined(file: Path) -> list[str]:
    """Functions and classes of a file, read without running it."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def _texts(
    loaded: LoadedModel, prompts: Sequence[str] | None, tokens: int, seed: int
) -> tuple[list["Text"], list[str]]:
    """What is read: the prompts, or our own, or ids drawn where there is no tokenizer; cut to what the model reads."""
    from peasy.proof.road import PADS, Text

    notes, model = [], loaded.model
    if loaded.tokenizer is None:
        if prompts:
            loaded.need_tokenizer()
        rows = [_drawn(model.config.vocabulary, length, seed + length) for length in LENGTHS]
        notes.append("It has no tokenizer: the ids are drawn.")
    else:
        rows = [list(loaded.tokenizer.encode(text).ids) for text in prompts or PROMPTS]
        notes += [] if prompts else ["No text was given: these are three sentences of peasy's own."]
    if not all(rows):
        raise InvalidInput("A text has no tokens.", hint="Give texts that are not empty.")
    _check_ids(model, rows)
    most = max(min(tokens, (getattr(model.config, "context", None) or tokens) - PADS), 1)
    if any(len(row) > most for row in rows):
        notes.append(f"Longer texts are cut to their first {most} tokens.")
    rows = [row[:most] for row in rows]
    if not model.reads_source:
        return [Text(tuple(row)) for row in rows], notes
    return [Text(tuple(_answer(model, len(row), seed)[:most]), tuple(row)) for row in rows], notes


def _answer(model: "Model", length: int, seed: int) -> list[int]:
    """An answer to a source: the start id and ids drawn. What it says does not matter, only that all roads agree."""
    settings: Any = model.config
    vocabulary = settings.target_vocabulary or settings.vocabulary
    return [settings.special.start or 0, *_drawn(vocabulary, length, seed)]


def _drawn(vocabulary: int, length: int, seed: int) -> list[int]:
    import numpy as np

    return [int(each) for each in np.random.default_rng(seed).integers(0, vocabulary, length)]


def _check_ids(model: "Model", rows: list[list[int]]) -> None:
    from peasy.workbench.embedding import check_ids

    check_ids(rows, model.config.vocabulary)
