"""`prove`: check a model's equalities (cached = uncached, ...), or compare your own attention code with the formula."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from peasy.atomic import write_atomic
from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, OnProgress, Result
from peasy.errors import InvalidInput, NotFound, PeasyError, UsageError
from peasy.verification.verdict import NOT_COMPARED, Diagnosis, Proof
from peasy.views import verification as views
from peasy.views.document import Document

if TYPE_CHECKING:
    from peasy.verification.implementation.child import ChildLimits, ExaminationRequest
    from peasy.verification.paths import TokenSequence

_PROMPTS = ("The pizza came out of the oven and it tasted good.", "Your journey starts with one step.", "I love AI.")
"""Default prompts."""
_RANDOM_LENGTHS = (17, 9, 1)
"""Lengths of the random sequences for a model without a tokenizer."""

_FILE_AND_NAME = re.compile(r"(?P<file>.+\.(?:py|ipynb))(?::(?P<name>[\w.]*))?", re.DOTALL)
_MODULE_AND_NAME = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_][\w.]*)")
_RIGHTS = "The code runs with your rights: examine only code that you would run yourself."
_EXAMPLES = "If no guess runs, calls in its project's tests and READMEs are tried. "
_Announce = Callable[[str], None]


class ProveResult(Result):
    """Verdicts on all equalities of a model. `passed` is true when none fails."""

    proof: Proof

    @property
    def passed(self) -> bool:
        """True if no equality fails."""
        return self.proof.passed

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        return views.proof_sentence(self.proof)

    def document(self) -> Document:
        """Return every equality with its largest difference, and where execution paths diverge."""
        return views.proof_document(self.proof)

    def data(self) -> JsonDict:
        """Return the proof as plain data."""
        return {"passed": self.passed, "verdict": self.verdict, **asdict(self.proof)}


class DoctorResult(Result):
    """Diagnosis of attention code. `passed`: True = equal to the formula, False = wrong, None = not compared."""

    diagnosis: Diagnosis

    @property
    def passed(self) -> bool | None:
        """True if it equals the formula; None if it could not be compared."""
        return self.diagnosis.passed

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        return views.diagnosis_sentence(self.diagnosis)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Names of the mistakes."""
        return self.diagnosis.mistakes

    def document(self) -> Document:
        """Return the mistakes with corrections, and the conventions in use."""
        return views.diagnosis_document(self.diagnosis)

    def data(self) -> JsonDict:
        """Return the diagnosis as plain data."""
        summary = {"passed": self.passed, "sentence": self.verdict, "mistakes": list(self.mistakes)}
        return summary | {"cautions": list(self.diagnosis.cautions)} | asdict(self.diagnosis)

    def save(self, path: str | Path) -> Path:
        """Write a file; `.xml` is a JUnit report for CI, other suffixes as for every result."""
        return _save_junit(path, [self.diagnosis]) if str(path).endswith(".xml") else super().save(path)


class FolderResult(Result):
    """Diagnoses of everything in a folder that looks like attention."""

    folder: str
    diagnoses: tuple[Diagnosis, ...]

    @property
    def passed(self) -> bool | None:
        """False if something is wrong, None if something was not compared, else True."""
        verdicts = [diagnosis.passed for diagnosis in self.diagnoses]
        return False if False in verdicts else None if None in verdicts or not verdicts else True

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        return views.folder_sentence(self.diagnoses)

    def document(self) -> Document:
        """Return a table of the diagnoses."""
        return views.folder_document(self.folder, self.diagnoses)

    def data(self) -> JsonDict:
        """Return the diagnoses as plain data."""
        rows = [DoctorResult(diagnosis).data() for diagnosis in self.diagnoses]
        return {"passed": self.passed, "sentence": self.verdict, "folder": self.folder, "diagnoses": rows}

    def save(self, path: str | Path) -> Path:
        """Write a file; `.xml` is a JUnit report for CI, other suffixes as for every result."""
        return _save_junit(path, self.diagnoses) if str(path).endswith(".xml") else super().save(path)


def _save_junit(path: str | Path, diagnoses: Sequence[Diagnosis]) -> Path:
    return write_atomic(path, views.junit_report(diagnoses))


def prove(
    target: object,
    prompts: str | Sequence[str] | None = None,
    *,
    call: str | None = None,
    expected: str | Path | None = None,
    max_tokens: Annotated[int, Ge(1)] = 128,
    timeout: Annotated[float, Gt(0)] = 60.0,
    seed: int = 0,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    announce: Callable[[str], None] | None = None,
    progress: OnProgress | None = None,
) -> ProveResult | DoctorResult | FolderResult:
    """Check the equalities of a model on your own prompts, or compare your own attention code with the formula.

    A model (its name, or the result of `load`): cached = uncached, single = batched, padded = unpadded,
    whole = chunked, fused = formula, packed ≈ full, exported = original; each with its measured distance.

    Code ("file.py:name", "notebook.ipynb:name", "package.module:name", a folder, or the object itself): it is called
    with seeded inputs, every operation is recorded, and scores, weights and context are compared with the formula. The
    verdict is equal, wrong (with the mistake and its line) or not compared (with the reason); conventions are named.
    How to call it is found by trying, or given: `call="attention(q, k, v, mask)"`. A file runs in a child process, with
    your rights.

    >>> import numpy as np
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2) / q.shape[-1]
    ...     weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    ...     return weights @ v
    >>> prove(attention).mistakes
    ('scale by d_k',)

    Args:
        target: Run name, folder, built-in model, Hugging Face hub id or loaded model; or your own code.
        prompts: Texts to verify with; default: three built-in sentences.
        call: How to call your code: any Python expression with the arrays q, k, v, x, source and mask.
        expected: Array file (.npy) with the output that you expected of the call: what turns one into the other.
        max_tokens: Maximum number of tokens of each text.
        timeout: Time limit in seconds of CPU time for your own code; code that waits has ten times as long.
        seed: Seed of the inputs of your own code, and of random token ids.
        announce: Called with a sentence before your own code is run.
        progress: Called with the number of finished checks and their total.
    """
    if isinstance(target, str | Path) and (request := _code_request(str(target), call, seed, expected)) is not None:
        return _diagnose_code(request, timeout, announce, progress)
    is_model = isinstance(target, str | Path | LoadedModel) or hasattr(target, "save_pretrained")
    if callable(target) and not is_model and not hasattr(target, "trained_by"):
        from peasy.verification.implementation.examine import examine

        array = None if expected is None else str(expected)
        return DoctorResult(examine(target, call=call, seed=seed, expected=array))
    if call is not None or expected is not None:
        raise UsageError("--call and --expected are for your own code; a model does not need them.")
    model: Any = target
    if hasattr(target, "trained_by"):
        loaded = LoadedModel(type(target).__name__, model, None)
    else:
        loaded = load(model, device=device, offline=offline, confirm=confirm)
    sequences, notes = _make_sequences(loaded, [prompts] if isinstance(prompts, str) else prompts, max_tokens, seed)
    from peasy.verification.equality import prove_model

    return ProveResult(prove_model(loaded.model, sequences, name=loaded.name, notes=notes, progress=progress))


def _code_request(
    target: str, call: str | None, seed: int, expected: str | Path | None
) -> "ExaminationRequest | Path | None":
    """Return what to examine if a target names code: a file, a module or a folder with Python files; else None."""
    from peasy.verification.implementation.child import ExaminationRequest

    array = None if expected is None else str(Path(expected).resolve())
    if array is not None and not Path(array).is_file():
        raise NotFound(f"There is no file {expected}.")
    if match := _FILE_AND_NAME.fullmatch(target):
        return ExaminationRequest(Path(match["file"]), "", match["name"] or "", call, seed, array)
    if match := _MODULE_AND_NAME.fullmatch(target):
        return ExaminationRequest(None, match["module"], match["name"], call, seed, array)
    folder = Path(target)
    if folder.is_dir() and not (folder / "config.json").exists() and any(folder.rglob("*.py")):
        return folder
    return None


def _diagnose_code(
    request: "ExaminationRequest | Path", timeout: float, announce: _Announce | None, progress: OnProgress | None
) -> DoctorResult | FolderResult:
    from peasy.verification.implementation.child import ChildLimits, examine_in_child

    limits = ChildLimits(cpu_seconds=math.ceil(timeout), timeout=10 * timeout)
    if isinstance(request, Path):
        return _diagnose_folder(request, limits, announce, progress)
    request = _with_name(request)
    if announce is not None:
        examples = "" if request.call else _EXAMPLES
        announce(f"Running {request.where} in a separate process with limits: {limits.summary()}. {examples}{_RIGHTS}")
    return DoctorResult(examine_in_child(request, limits))


def _with_name(request: "ExaminationRequest") -> "ExaminationRequest":
    """Return the request with the name of the code: given, the only candidate of the file, or the one in the call."""
    from peasy.verification.implementation.loading import attention_candidates, defined_names

    file = request.file
    if file is None:
        return request
    if not file.is_file():
        raise NotFound(f"There is no file {file}.")
    if request.name:
        return request
    called = re.match(r"[A-Za-z_]\w*", request.call or "")
    candidates = list(attention_candidates(file))
    if called and called[0] in defined_names(file):
        return replace(request, name=called[0])
    if len(candidates) == 1:
        return replace(request, name=candidates[0])
    hint = "\n".join(f"peasy prove {file}:{defined}" for defined in (candidates or defined_names(file))[:8])
    raise UsageError(f"Which function of {file}?", hint=hint)


def _diagnose_folder(
    folder: Path, limits: "ChildLimits", announce: _Announce | None, progress: OnProgress | None
) -> FolderResult:
    """Examine everything in a folder that looks like attention, one child process each."""
    from peasy.verification.implementation.child import ExaminationRequest, examine_in_child
    from peasy.verification.implementation.loading import attention_candidates

    paths = (path for suffix in ("py", "ipynb") for path in folder.rglob(f"*.{suffix}"))
    files = sorted(path for path in paths if not _is_hidden(path, folder))
    found = [(file, name) for file in files for name in attention_candidates(file)]
    if not found:
        raise NotFound(f"Nothing in {folder} looks like attention.", hint="Give a file: peasy prove file.py:name")
    if announce is not None:
        announce(f"Running {len(found)} functions and classes of {folder} in separate processes. {_EXAMPLES}{_RIGHTS}")
    diagnoses = []
    for number, (file, name) in enumerate(found):
        if progress is not None:
            progress(number, len(found))
        place = f"{file.relative_to(folder)}:{name}"
        try:
            diagnosis = replace(examine_in_child(ExaminationRequest(file, "", name), limits), name=place)
        except PeasyError as error:
            diagnosis = Diagnosis(place, "", "", NOT_COMPARED, unknown=(error.message,))
        diagnoses.append(diagnosis)
    return FolderResult(str(folder), tuple(diagnoses))


def _is_hidden(path: Path, folder: Path) -> bool:
    """Return whether a path lies in a hidden folder, an environment or a folder of tests."""
    skipped = ("node_modules", "venv", "site-packages", "build")
    return any(part.startswith((".", "test")) or part in skipped for part in path.relative_to(folder).parts)


def _make_sequences(
    loaded: LoadedModel, prompts: Sequence[str] | None, max_tokens: int, seed: int
) -> tuple[list["TokenSequence"], list[str]]:
    """Return the sequences to check: prompts, defaults, or random ids without a tokenizer; cut to the context."""
    from peasy.models.transformer import check_token_range
    from peasy.verification.paths import NUM_PADDING_TOKENS, TokenSequence

    notes, model = [], loaded.model
    if loaded.tokenizer is None:
        if prompts:
            loaded.require_tokenizer()
        rows = [_random_ids(model.config.vocab_size, length, seed + length) for length in _RANDOM_LENGTHS]
        notes.append("The model has no tokenizer: token ids are random.")
    else:
        rows = [loaded.encode_prompt(text) if text else [] for text in prompts or _PROMPTS]
        notes += [] if prompts else ["No prompts were given: three default sentences are used."]
    if not all(rows):
        raise InvalidInput("A prompt has no tokens.", hint="Give prompts that are not empty.")
    check_token_range([id for row in rows for id in row], model.config.vocab_size)
    max_seq_len = loaded.max_seq_len or max_tokens
    max_tokens = max(min(max_tokens, max_seq_len - NUM_PADDING_TOKENS), 1)
    if any(len(row) > max_tokens for row in rows):
        notes.append(f"Longer prompts are cut to their first {max_tokens} tokens.")
    rows = [row[:max_tokens] for row in rows]
    if not model.is_encoder_decoder:
        return [TokenSequence(tuple(row)) for row in rows], notes
    # random decoder input after the start token: only the agreement of the execution paths matters
    config: Any = model.config
    vocabulary, start = config.target_vocab_size or config.vocab_size, config.special_tokens.decoder_start or 0
    targets = [[start, *_random_ids(vocabulary, len(row), seed)][:max_tokens] for row in rows]
    return [TokenSequence(tuple(ids), tuple(row)) for ids, row in zip(targets, rows, strict=True)], notes


def _random_ids(vocab_size: int, length: int, seed: int) -> list[int]:
    import numpy as np

    return [int(id) for id in np.random.default_rng(seed).integers(0, vocab_size, length)]
