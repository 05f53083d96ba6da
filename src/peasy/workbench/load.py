"""`load`: load a model with its tokenizer by name, folder, hub id or from transformers."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from peasy import config as settings
from peasy.checkpoint import memory
from peasy.checkpoint.folder import Folder
from peasy.checkpoint.hub import Ask
from peasy.checkpoint.resolve import Found, resolve
from peasy.checkpoint.store import CONFIG, is_checkpoint, read_checkpoint
from peasy.checkpoint.tensors import open_tensors
from peasy.checkpoint.tokenizer import read_target_tokenizer, read_tokenizer
from peasy.display import Displayed
from peasy.errors import InvalidInput, NotFound
from peasy.parts import need
from peasy.text import Tokenizer
from peasy.views.document import Document
from peasy.views.model import model_document
from peasy.workbench.embedding import check_ids, embed_texts

if TYPE_CHECKING:
    from peasy.models.describe import Box
    from peasy.models.protocol import Model
    from peasy.workbench.embedding import Pooling
    from peasy.workbench.finding import Finding
    from peasy.workbench.looked import LookResult
    from peasy.workbench.translate import Translation


STORED = "stored"
"""Manifest note of a checkpoint stored in lower precision than it runs in."""


@dataclass(frozen=True, repr=False, eq=False)
class LoadedModel(Displayed):
    """A model with its tokenizer, as returned by `peasy.load`; its abilities depend on its kind."""

    name: str
    model: "Model"
    tokenizer: Tokenizer | None
    target_tokenizer: Tokenizer | None = None
    folder: Path | None = None
    family: str | None = None
    unused: tuple[str, ...] = field(default=())
    packed: "dict[str, Model]" = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """decoder, encoder, encoder-decoder, recurrent, ..."""
        return type(self.model.config).kind

    def describe(self) -> "Box":
        """Return the architecture diagram of this model: nested boxes with shapes, parameters and memory."""
        return self.model.describe()

    def embed(self, texts: str | Sequence[str], *, pooling: "Pooling | None" = None, half: bool = False) -> np.ndarray:
        """Embed texts: `[texts, d_model]`, or `[d_model]` for a single text.

        An encoder uses the pooling it was trained with; `pooling` "mean", "cls" or "last" takes the mean, the first or
        the last hidden state and is required for other kinds of model. `half` multiplies in bfloat16: faster on CPUs
        with bfloat16 instructions, accurate to about four digits.
        """
        if self.kind != "encoder" and (pooling is None or self.model.reads_source or self.kind == "ngram"):
            hint = "Give pooling: mean or last." if self.kind in ("decoder", "recurrent", "convolution") else None
            raise InvalidInput(f"{self.name} is a {self.kind}: only an encoder embeds without pooling.", hint=hint)
        many = [texts] if isinstance(texts, str) else list(texts)
        vectors = embed_texts(self.model, self.need_tokenizer(), many, half, pooling)
        return vectors[0] if isinstance(texts, str) else vectors

    @overload
    def generate(self, text: str, **how: Any) -> str: ...
    @overload
    def generate(self, text: Sequence[str], **how: Any) -> list[str]: ...
    def generate(self, text: str | Sequence[str], **how: Any) -> str | list[str]:
        """Generate the continuation of a text, or the output of an encoder-decoder; a list of texts gives a list.

        `how`: max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
        stop, seed, ... `peasy.generate` also returns probabilities and cache statistics.
        """
        from peasy.workbench.generate import Writer

        job = Writer(self, [text] if isinstance(text, str) else list(text), **how)
        for _ in job.events():
            pass
        job.check()
        texts = [output.text for output in job.drafts]
        return texts[0] if isinstance(text, str) else texts

    def stream(self, text: str, **how: Any) -> Iterator[str]:
        """Stream the generated text in whole characters; closing the iterator stops generation."""
        from peasy.workbench.generate import Writer

        return Writer(self, [text], **how).pieces()

    def translate(self, text: str, **how: Any) -> "Translation":
        """Translate a text: `.text`, `.score`, `.others`, `.alignment()`. `how`: beam, n, max_tokens, ..."""
        from peasy.workbench.translate import translate

        translation = translate(self, text, **how).translations[0]
        if translation.error is not None:
            raise translation.error
        return translation

    def look(self, text: str, target: str | None = None, **how: Any) -> "LookResult":
        """Inspect one forward pass: `.weights[layer, head]`, `.heads(query=...)`, `.lens()`, ..."""
        from peasy.workbench.look import look

        return look(self, text, target, **how)

    def heads(self, texts: str | Sequence[str], **how: Any) -> "Finding":
        """Score and rank all attention heads on these texts. `how`: by, seed."""
        from peasy.workbench.heads import study

        return study(self, texts, **how)

    def trace(self, text: str, **how: Any) -> "Finding":
        """Generate from a prompt and record the attention of every token. `how`: beam, max_tokens, temperature, ..."""
        from peasy.workbench.trace import trace

        return trace(self, text, **how)

    def why(self, first: str, second: str) -> "Finding":
        """Explain the cosine similarity of two sentences as a sum over word pairs; encoders only."""
        from peasy.workbench.why import explain_why

        return explain_why(self, first, second)

    def prompt(self, text: str) -> list[int]:
        """Encode a prompt with special tokens; an empty prompt becomes [bos]."""
        tokenizer = self.need_tokenizer()
        bos = tokenizer.special.bos
        ids = list(tokenizer.encode(text).ids)
        check_ids([ids], self.model.config.vocabulary)
        return ids if ids or bos is None else [bos]

    def answers(self) -> Tokenizer:
        """Return the tokenizer of the model's output."""
        return self.target_tokenizer or self.need_tokenizer()

    def need_tokenizer(self) -> Tokenizer:
        """Return the tokenizer, or raise if the model has none."""
        if self.tokenizer is None:
            raise NotFound(f"{self.name} has no tokenizer: it takes only token ids, through `.model`.")
        return self.tokenizer

    def document(self) -> Document:
        """The architecture diagram."""
        return model_document(self.describe(), self.name)

    def data(self) -> dict[str, Any]:
        """Name, kind, config and size as plain data."""
        return {
            "name": self.name,
            "kind": self.kind,
            "parameters": self.model.count_parameters(),
            "bytes": self.model.memory(),
            "config": settings.plain(self.model.config),
            "vocabulary": len(self.tokenizer) if self.tokenizer else None,
        }

    def __repr__(self) -> str:
        size = f"{self.model.count_parameters():,} parameters, {memory.show_bytes(self.model.memory())}"
        return f"LoadedModel({self.name}: {self.kind}, {size})"


def load(
    model: Any,
    *,
    tokenizer: Any = None,
    device: str = "auto",
    offline: bool = False,
    yes: bool = False,
    ask: Ask | None = None,
) -> LoadedModel:
    """Load a model: a folder, a run, a built-in, a hub id, or a transformers model (with its tokenizer).

    A hub model that is not in the cache is downloaded only if `yes` is true or `ask(question)` returns True.

    >>> load("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    need("torch")
    if hasattr(model, "save_pretrained"):
        loaded = _open_object(model, tokenizer)
    elif tokenizer is not None:
        raise InvalidInput("tokenizer can be given only with a transformers model object.")
    else:
        loaded = open_found(resolve(model, offline=offline, ask=(lambda question: True) if yes else ask))
    target = choose_device(device)
    if target != "cpu":
        loaded.model.to(target)
    return loaded


def open_found(found: Found) -> LoadedModel:
    """Load a resolved folder: a peasy checkpoint or a Hugging Face folder."""
    if found.folder.is_file():
        raise InvalidInput(f"{found.folder} is a file, not a model.", hint="Give the folder that holds config.json.")
    if is_checkpoint(found.folder):
        return _open_own(found)
    folder = Folder(found.folder)
    if not folder.has(CONFIG):
        raise NotFound(f"{found.folder} is not a model: it has no {CONFIG}.")
    return _open_foreign(found, folder)


def choose_device(device: str) -> str:
    """Resolve a device name; `auto` is cuda or mps if available, else cpu."""
    import torch

    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if available[name])
    if device not in available:
        raise InvalidInput(f'There is no device "{device}".', hint="Choose auto, cpu, cuda or mps.")
    if not available[device]:
        raise NotFound(f"This machine has no {device}.", hint="Choose --device cpu.")
    return device


def _open_object(model: Any, tokenizer: Any) -> LoadedModel:
    """Load a transformers model object with all checks of a folder, sharing its weights.

    If its parameter names differ from those in its files, it is saved to a folder and loaded from there.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        try:
            loaded = _share(model, Path(folder))
        except InvalidInput:
            model.save_pretrained(folder)
            loaded = open_found(Found("path", type(model).__name__, Path(folder)))
    return replace(loaded, folder=None)


def _share(model: Any, path: Path) -> LoadedModel:
    """Read the config through the folder and share the weight tensors: a change in one model changes the other."""
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.checkpoint.tensors import HeldTensors

    model.config.save_pretrained(path)
    config = Folder(path).read_json(CONFIG) | {"architectures": [type(model).__name__]}
    (path / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    hf_model = read_folder(path, tensors=HeldTensors(model.state_dict()))
    folder = Folder(path)
    return LoadedModel(
        type(model).__name__, load_model(hf_model), read_tokenizer(folder), read_target_tokenizer(folder), None,
        hf_model.family, hf_model.unused,
    )  # fmt: skip


def _open_own(resolved: Found) -> LoadedModel:
    from peasy.checkpoint.model import load_model

    checkpoint = read_checkpoint(resolved.folder, verified=resolved.verified)
    model = load_model(checkpoint)
    notes = checkpoint.manifest.notes
    if STORED in notes:
        model = model.float()
    return LoadedModel(
        resolved.name,
        model,
        read_tokenizer(checkpoint.folder),
        read_target_tokenizer(checkpoint.folder),
        resolved.folder,
        notes.get("family"),
    )


def _open_foreign(resolved: Found, folder: Folder) -> LoadedModel:
    from peasy.checkpoint.huggingface import load_model, read_folder, recognise

    recognise(folder.read_json(CONFIG), str(folder.path / CONFIG))
    memory.require(open_tensors(folder).bytes, resolved.name)
    hf_model = read_folder(resolved.folder)
    return LoadedModel(
        resolved.name,
        load_model(hf_model),
        read_tokenizer(folder),
        read_target_tokenizer(folder),
        resolved.folder,
        hf_model.family,
        hf_model.unused,
    )
