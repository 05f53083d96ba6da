"""`prove`: check a model's equalities (cached = uncached, ...) or diagnose your own attention implementation."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt

from peasy.checkpoint.hub import Confirm
from peasy.commands.load import LoadedModel, load
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput, NotFound, UsageError
from peasy.extras import require_extra
from peasy.verification.verdict import Diagnosis, Proof
from peasy.views.document import Document
from peasy.views.verification import diagnosis_document, diagnosis_sentence, proof_document, proof_sentence

if TYPE_CHECKING:
    from peasy.verification.paths import TokenSequence

_PROMPTS = (
    "The pizza came out of the oven and it tasted good.",
    "Your journey starts with one step.",
    "I love AI.",
)
"""Default prompts."""
_RANDOM_LENGTHS = (17, 9, 1)
"""Lengths of the random sequences for a model without a tokenizer."""

_FILE_AND_NAME = re.compile(r"(?P<file>.+\.py)(?::(?P<name>[\w.]*))?", re.DOTALL)


@dataclass(frozen=True, repr=False)
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
        return proof_sentence(self.proof)

    def document(self) -> Document:
        """Return every equality with its largest difference, and where execution paths diverge."""
        return proof_document(self.proof)

    def data(self) -> JsonDict:
        """Return the proof as plain data."""
        return {"passed": self.passed, "verdict": self.verdict, **asdict(self.proof)}

    def __repr__(self) -> str:
        return f"ProveResult({self.proof.model}: {self.verdict})"


@dataclass(frozen=True, repr=False)
class DoctorResult(Result):
    """Diagnosis of an attention function or module. `passed` is true without mistakes; cautions do not count."""

    diagnosis: Diagnosis

    @property
    def passed(self) -> bool:
        """True if it computes attention."""
        return self.diagnosis.passed

    @property
    def verdict(self) -> str:
        """Summary in one sentence."""
        return diagnosis_sentence(self.diagnosis)

    @property
    def mistakes(self) -> tuple[str, ...]:
        """Names of the mistakes."""
        return self.diagnosis.mistakes

    def document(self) -> Document:
        """Return the mistakes with corrections, and the conventions in use."""
        return diagnosis_document(self.diagnosis)

    def data(self) -> JsonDict:
        """Return the diagnosis as plain data."""
        summary = {"passed": self.passed, "verdict": self.verdict, "mistakes": list(self.mistakes)}
        return summary | {"cautions": list(self.diagnosis.cautions)} | asdict(self.diagnosis)

    def __repr__(self) -> str:
        return f"DoctorResult({self.verdict})"


def prove(
    target: object,
    prompts: str | Sequence[str] | None = None,
    *,
    call: str | None = None,
    max_tokens: Annotated[int, Ge(1)] = 128,
    timeout: Annotated[float, Gt(0)] = 60.0,
    seed: int = 0,
    device: str = "auto",
    offline: bool = False,
    confirm: Confirm | None = None,
    announce: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ProveResult | DoctorResult:
    """Check the equalities of a model on your own prompts, or diagnose your own attention implementation.

    A model (its name, or the result of `load`): cached = uncached, single = batched, padded = unpadded,
    whole = chunked, fused = formula, packed ≈ full, exported = original; each with its measured distance.

    A function or module ("file.py:name", or the object itself): compared with the formula on seeded inputs; mistakes
    are named, conventions are only mentioned. How to call it is found from its signature, or given:
    `call="attention(q, k, v, mask)"`. A file runs in a subprocess.

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
        call: How to call your function, with the names q, k, v, x, mask, heads, cache, ...
        max_tokens: Maximum number of tokens of each text.
        timeout: Time limit in seconds for your own code.
        seed: Seed of the inputs of your own code, and of random token ids.
        announce: Called with a sentence before your own code is run.
        progress: Called with the number of finished checks and their total.
    """
    if isinstance(target, str | Path) and (match := _FILE_AND_NAME.fullmatch(str(target))):
        return _diagnose_file(Path(match["file"]), match["name"] or "", call, timeout, seed, announce)
    if _is_user_code(target):
        from peasy.verification.implementation.call_binding import parse_call
        from peasy.verification.implementation.examine import examine
        from peasy.verification.implementation.target import LocalTarget

        return DoctorResult(examine(LocalTarget(target), binding=parse_call(call) if call else None, seed=seed))
    if call is not None:
        raise UsageError("--call describes how to call your own function; a model does not need it.")
    require_extra("torch")
    model: Any = target
    if hasattr(target, "trained_by"):
        loaded = LoadedModel(type(target).__name__, model, None)
    else:
        loaded = load(model, device=device, offline=offline, confirm=confirm)
    sequences, notes = _make_sequences(loaded, [prompts] if isinstance(prompts, str) else prompts, max_tokens, seed)
    from peasy.verification.equality import prove_model

    return ProveResult(prove_model(loaded.model, sequences, name=loaded.name, notes=notes, progress=progress))


def _is_user_code(target: object) -> bool:
    """Return whether this is the user's own function or module, not a model of peasy or transformers."""
    if isinstance(target, str | Path | LoadedModel) or hasattr(target, "save_pretrained") or not callable(target):
        return False
    return not hasattr(target, "trained_by")


def _diagnose_file(
    file: Path, name: str, call: str | None, timeout: float, seed: int, announce: Callable[[str], None] | None
) -> DoctorResult:
    from peasy.verification.implementation.call_binding import parse_call
    from peasy.verification.implementation.examine import examine
    from peasy.verification.implementation.remote import SandboxedTarget, SandboxLimits

    if not file.is_file():
        raise NotFound(f"There is no file {file}.")
    binding = parse_call(call) if call else None
    name = name or (binding.name if binding else "")
    if not name:
        hint = "\n".join(f"peasy prove {file}:{defined}" for defined in _defined_names(file)[:8])
        raise UsageError(f"Which function of {file}?", hint=hint)
    limits = SandboxLimits(timeout=timeout)
    if announce is not None:
        announce(f"Running {file} in a separate process with limits: {limits.summary()}.")
    with SandboxedTarget(file, name, limits) as target:
        return DoctorResult(examine(target, binding=binding, seed=seed))


def _defined_names(file: Path) -> list[str]:
    """List functions and classes of a file without running it."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


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
