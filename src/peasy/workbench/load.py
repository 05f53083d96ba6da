"""`load`: a model by name, ready to be asked."""

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
"""The note of a checkpoint that is kept in fewer bits than it runs in."""


@dataclass(frozen=True, repr=False, eq=False)
class LoadedModel(Displayed):
    """A model with its tokenizer, as `peasy.load` gives it. What it can do depends on its kind."""

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
        """Figure 1 of this very model: boxes in boxes, with shapes, parameters and memory."""
        return self.model.describe()

    def embed(self, texts: str | Sequence[str], *, pooling: "Pooling | None" = None, half: bool = False) -> np.ndarray:
        """One vector for each text, `[texts, d_model]`; for a single text `[d_model]`.

        An encoder pools as it was trained for; `pooling` "mean", "cls" or "last" takes the mean of the tokens' vectors,
        the first or the last one, and is needed for models of other kinds. `half` multiplies in bfloat16: faster where
        the processor has instructions for it, to about four digits.
        """
        if self.kind != "encoder" and (pooling is None or self.model.reads_source or self.kind == "ngram"):
            hint = "Give pooling: mean or last." if self.kind in ("decoder", "recurrent", "convolution") else None
            raise InvalidInput(f"{self.name} is a {self.kind}: only an encoder embeds texts by itself.", hint=hint)
        single = [texts] if isinstance(texts, str) else list(texts)
        vectors = embed_texts(self.model, self.need_tokenizer(), single, half, pooling)
        return vectors[0] if isinstance(texts, str) else vectors

    @overload
    def generate(self, text: str, **how: Any) -> str: ...
    @overload
    def generate(self, text: Sequence[str], **how: Any) -> list[str]: ...
    def generate(self, text: str | Sequence[str], **how: Any) -> str | list[str]:
        """What the model writes after a text, or as its answer to one if it is an encoder-decoder; many give a list.

        `how`: max_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty,
        stop, seed, ... `peasy.generate` also tells chances and what the cache saved.
        """
        from peasy.workbench.generate import Writer

        writer = Writer(self, [text] if isinstance(text, str) else list(text), **how)
        for _ in writer.events():
            pass
        writer.check()
        texts = [draft.text for draft in writer.drafts]
        return texts[0] if isinstance(text, str) else texts

    def stream(self, text: str, **how: Any) -> Iterator[str]:
        """The same, piece by piece as it is written; never half a character. Closing it stops the work."""
        from peasy.workbench.generate import Writer

        return Writer(self, [text], **how).pieces()

    def translate(self, text: str, **how: Any) -> "Translation":
        """The translation of a text: `.text`, `.score`, `.others`, `.alignment()`. `how`: beam, n, max_tokens, ..."""
        from peasy.workbench.translate import translate

        found = translate(self, text, **how).translations[0]
        if found.error is not None:
            raise found.error
        return found

    def look(self, text: str, target: str | None = None, **how: Any) -> "LookResult":
        """Look into the model while it reads a text: `.weights[layer, head]`, `.heads(query=...)`, `.lens()`, ..."""
        from peasy.workbench.look import look

        return look(self, text, target, **how)

    def heads(self, texts: str | Sequence[str], **how: Any) -> "Finding":
        """What every head does across some texts, ranked. `how`: by, seed."""
        from peasy.workbench.heads import study

        return study(self, texts, **how)

    def trace(self, text: str, **how: Any) -> "Finding":
        """Write on after a text, and keep what every token looked at. `how`: beam, max_tokens, temperature, ..."""
        from peasy.workbench.trace import trace

        return trace(self, text, **how)

    def why(self, first: str, second: str) -> "Finding":
        """Why two sentences are alike: their cosine in pairs of words that add up to it. Only encoders can."""
        from peasy.workbench.why import explain_why

        return explain_why(self, first, second)

    def prompt(self, text: str) -> list[int]:
        """The ids of a text as the model is to read it."""
        tokenizer = self.need_tokenizer()
        begin = tokenizer.special.bos
        ids = list(tokenizer.encode(text).ids)
        check_ids([ids], self.model.config.vocabulary)
        return ids if ids or begin is None else [begin]

    def answers(self) -> Tokenizer:
        """The tokenizer of what the model writes."""
        return self.target_tokenizer or self.need_tokenizer()

    def need_tokenizer(self) -> Tokenizer:
        """The tokenizer; an error where the model came without one."""
        if self.tokenizer is None:
            raise NotFound(f"{self.name} has no tokenizer: it can only be asked with ids, by `.model`.")
        return self.tokenizer

    def document(self) -> Document:
        """What the model is, box by box."""
        return model_document(self.describe(), self.name)

    def data(self) -> dict[str, Any]:
        """Name, kind, settings and size as plain data."""
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
    """Load a model: a folder, a run, a built-in, a hub id, or a model of transformers (with its tokenizer).

    A hub model that is not in the cache is fetched only if `yes` is true or `ask` answers a question with True.

    >>> load("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    need("torch")
    if hasattr(model, "save_pretrained"):
        loaded = _open_object(model, tokenizer)
    elif tokenizer is not None:
        raise InvalidInput("A tokenizer is only given along with a model of transformers.")
    else:
        loaded = open_found(resolve(model, offline=offline, ask=(lambda question: True) if yes else ask))
    chosen = choose_device(device)
    if chosen != "cpu":
        loaded.model.to(chosen)
    return loaded


def open_found(found: Found) -> LoadedModel:
    """The model of a folder that was resolved: peasy's own, or Hugging Face's."""
    if found.folder.is_file():
        raise InvalidInput(f"{found.folder} is a file, not a model.", hint="Give the folder that holds config.json.")
    if is_checkpoint(found.folder):
        return _open_own(found)
    folder = Folder(found.folder)
    if not folder.has(CONFIG):
        raise NotFound(f"{found.folder} holds no model: there is no {CONFIG}.")
    return _open_foreign(found, folder)


def choose_device(device: str) -> str:
    """`auto` is the graphics card where there is one, else the processor."""
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        return next(name for name in ("cuda", "mps", "cpu") if there[name])
    if device not in there:
        raise InvalidInput(f'There is no device "{device}".', hint="Choose auto, cpu, cuda or mps.")
    if not there[device]:
        raise NotFound(f"This machine has no {device}.", hint="Choose --device cpu.")
    return device


def _open_object(model: Any, tokenizer: Any) -> LoadedModel:
    """A model that somebody's program holds, with all checks of a folder; the weights stay where they are.

    Only where its names are not those of its own files, it takes the way of every other: through a folder.
    """
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        if tokenizer is not None:
            tokenizer.save_pretrained(place)
        try:
            loaded = _share(model, Path(place))
        except InvalidInput:
            model.save_pretrained(place)
            loaded = open_found(Found("path", type(model).__name__, Path(place)))
    return replace(loaded, folder=None)


def _share(model: Any, place: Path) -> LoadedModel:
    """The settings through the folder, the weights through memory: what is changed in one is changed in the other."""
    from peasy.checkpoint.huggingface import load_model, read_folder
    from peasy.checkpoint.tensors import HeldTensors

    model.config.save_pretrained(place)
    told = Folder(place).read_json(CONFIG) | {"architectures": [type(model).__name__]}
    (place / CONFIG).write_text(json.dumps(told), encoding="utf-8")
    arrival = read_folder(place, tensors=HeldTensors(model.state_dict()))
    folder = Folder(place)
    return LoadedModel(
        type(model).__name__, load_model(arrival), read_tokenizer(folder), read_target_tokenizer(folder), None,
        arrival.family, arrival.unused,
    )  # fmt: skip


def _open_own(found: Found) -> LoadedModel:
    from peasy.checkpoint.model import load_model

    checkpoint = read_checkpoint(found.folder, verified=found.verified)
    model = load_model(checkpoint)
    notes = checkpoint.manifest.notes
    if STORED in notes:
        model = model.float()
    return LoadedModel(
        found.name,
        model,
        read_tokenizer(checkpoint.folder),
        read_target_tokenizer(checkpoint.folder),
        found.folder,
        notes.get("family"),
    )


def _open_foreign(found: Found, folder: Folder) -> LoadedModel:
    from peasy.checkpoint.huggingface import load_model, read_folder, recognise

    recognise(folder.read_json(CONFIG), str(folder.path / CONFIG))
    memory.require(open_tensors(folder).bytes, found.name)
    arrival = read_folder(found.folder)
    return LoadedModel(
        found.name,
        load_model(arrival),
        read_tokenizer(folder),
        read_target_tokenizer(folder),
        found.folder,
        arrival.family,
        arrival.unused,
    )
