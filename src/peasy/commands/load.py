"""`load`: load a model with its tokenizer by name, folder, hub id or from transformers."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, TypedDict, Unpack, runtime_checkable

from peasy import config as settings
from peasy.checkpoint.hub import Confirm
from peasy.checkpoint.loaded_model import ModelBundle, open_model
from peasy.checkpoint.paths import ResolvedModel, resolve_model
from peasy.checkpoint.ram import format_bytes
from peasy.checkpoint.safe_folder import SafeFolder
from peasy.checkpoint.store import CONFIG_FILE, GENERATION_FILE
from peasy.checkpoint.tensors import InMemoryTensors, TensorStore
from peasy.commands.result import JsonDict
from peasy.display import DisplayMixin
from peasy.errors import InvalidInput, NotFound, lookup
from peasy.parameters import Record, checked_options, with_checked_arguments
from peasy.tokenization import Tokenizer
from peasy.views.document import Document
from peasy.views.model import model_document

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from peasy.commands.classify import ClassifyResult
    from peasy.commands.embed import embed as embed_command
    from peasy.commands.generate import generate as generate_command
    from peasy.commands.heads import rank_heads
    from peasy.commands.look import look as look_command
    from peasy.commands.semantic_map import similarity_by_words
    from peasy.commands.sweep import sweep as sweep_command
    from peasy.commands.trace import trace as trace_command
    from peasy.commands.translate import Translation
    from peasy.generation.sampling_params import LongPrompt, SamplingOptions
    from peasy.models.describe import Box
    from peasy.models.protocol import Model

    class GenerateOptions(SamplingOptions, total=False):
        """Keyword arguments of `LoadedModel.stream`."""

        n: int
        weights: str
        use_cache: bool
        add_special_tokens: bool
        long: LongPrompt
        speculative: bool

    class TranslateOptions(TypedDict, total=False):
        """Keyword arguments of `LoadedModel.translate`."""

        source_language: str | None
        target_language: str | None
        num_beams: int
        n: int
        align: bool
        max_tokens: int | None
        length_penalty: float
        early_stopping: Literal["always", "heuristic", "never"]


class _SavesPretrained(Protocol):
    """Model, config or tokenizer of transformers."""

    def save_pretrained(self, folder: Path) -> object: ...


@runtime_checkable
class _TransformersModel(_SavesPretrained, Protocol):
    """Model object of transformers."""

    @property
    def config(self) -> _SavesPretrained: ...
    def state_dict(self) -> "Mapping[str, Tensor]": ...


def _command_method(module: str, name: str, result: str) -> Callable[..., object]:
    """Return a method that calls a command with the model as its first argument; imported when it is called."""

    def method(self: "LoadedModel", *args: object, **options: object) -> object:
        command: Callable[..., object] = getattr(import_module(f"peasy.commands.{module}"), name)
        return with_checked_arguments(command)(self, *args, **options)

    method.__doc__ = f"Call `peasy.commands.{module}.{name}` with this model."
    method.__annotations__["return"] = result
    return method


class LoadedModel(ModelBundle, DisplayMixin, Record, repr=False, eq=False):
    """A model with its tokenizer, as returned by `peasy.load`; its abilities depend on its kind."""

    if TYPE_CHECKING:
        look = look_command
        generate = generate_command
        embed = embed_command
        heads = rank_heads
        trace = trace_command
        sweep = sweep_command
        explain_similarity = similarity_by_words
    else:
        generate = _command_method("generate", "generate", "GenerateResult")
        embed = _command_method("embed", "embed", "EmbedResult")
        look = _command_method("look", "look", "LookResult | LookBatch")
        heads = _command_method("heads", "rank_heads", "HeadRankingResult")
        trace, sweep = (
            _command_method("trace", "trace", "TraceResult"),
            _command_method("sweep", "sweep", "SweepResult"),
        )
        explain_similarity = _command_method("semantic_map", "similarity_by_words", "SimilarityResult")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Say where attributes of the network are: `m.model.state_dict()`."""
            network = vars(self).get("model")  # none while it is unpickled
            where = f" The network has it: .model.{name}" if hasattr(network, name) else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name}.{where}")

    def describe(self) -> "Box":
        """Return the architecture diagram of this model: nested boxes with shapes, parameters and memory."""
        return self.model.describe()

    def stream(self, prompt: str | Sequence[int], **options: "Unpack[GenerateOptions]") -> Iterator[str]:
        """Stream the generated text in whole characters; closing the iterator stops generation."""
        from peasy.commands.generate import GenerationJob

        checked: Any = checked_options(GenerationJob.__init__, options, "stream")
        return GenerationJob(self, [prompt], **checked).text_deltas()

    def translate(self, text: str, **options: "Unpack[TranslateOptions]") -> "Translation":
        """Translate a text: `.text`, `.score`, `.others`, `.alignment()`. `options`: num_beams, n, max_tokens, ..."""
        from peasy.commands.translate import translate

        translation = with_checked_arguments(translate)(self, text, **options).translations[0]
        if translation.error is not None:
            raise translation.error
        return translation

    def classify(self, texts: str | Sequence[str]) -> "ClassifyResult":
        """Classify texts or their tokens, if the model has a classification head."""
        from peasy.commands.classify import classify

        return classify(self, texts)

    def save(self, folder: str | Path) -> Path:
        """Save the model and its tokenizers as a peasy checkpoint, in a new folder that `peasy.load` reads."""
        from peasy.checkpoint.model import save_model

        notes = {"family": self.family} if self.family else {}
        return save_model(folder, self.model, self.tokenizer, target_tokenizer=self.target_tokenizer, notes=notes)

    def save_pretrained(self, folder: str | Path) -> Path:
        """Save a Hugging Face folder, which transformers reads, with the name that transformers has for it."""
        from peasy.commands.exporting import export_model

        return export_model(self, folder).folder

    def to(
        self, device: "str | torch.device | torch.dtype | None" = None, dtype: "torch.dtype | str | None" = None
    ) -> "LoadedModel":
        """Move the model to a device, or convert its weights (torch.float16 or "float16"), in place; return it."""
        import torch

        if isinstance(device, torch.dtype):  # torch takes either one first
            device, dtype = None, device
        names = ("float32", "float16", "bfloat16", "float64")
        wanted = lookup(dtype, {name: getattr(torch, name) for name in names}, "dtype")
        try:
            self.model.to(device=device, dtype=wanted)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidInput(f"torch cannot move the model there: {str(error).splitlines()[0]}") from None
        return self

    def parameters(self) -> "Iterator[nn.Parameter]":
        """Iterate over the weights, as of a torch module."""
        return self.model.parameters()

    def document(self) -> Document:
        """The architecture diagram."""
        return model_document(self.describe(), self.name)

    def data(self) -> JsonDict:
        """Name, kind, config and size as plain data."""
        size, vocabulary = self.model.weight_bytes(), len(self.tokenizer) if self.tokenizer else None
        data = {"name": self.name, "kind": self.kind, "parameters": self.model.count_parameters(), "bytes": size}
        return data | {"config": settings.to_plain(self.model.config), "vocab_size": vocabulary}

    def __repr__(self) -> str:
        size = f"{self.model.count_parameters():,} parameters, {format_bytes(self.model.weight_bytes())}"
        return f"LoadedModel({self.name}: {self.kind}, {size})"


ModelSource: TypeAlias = "str | Path | LoadedModel | Model | _TransformersModel"
"""What `load` reads a model from."""
TokenizerSource: TypeAlias = Tokenizer | _SavesPretrained


def load(
    model: ModelSource,
    *,
    tokenizer: TokenizerSource | None = None,
    device: str = "auto",
    offline: bool = False,
    yes: bool = False,
    confirm: Confirm | None = None,
) -> LoadedModel:
    """Load a model: a folder, a run, a built-in, a hub id, or a transformers model (with its tokenizer).

    A loaded model is returned as it is. A hub model that is not in the cache is downloaded only if `yes` is true or
    `confirm(question)` returns True.

    >>> load("no/such-model", offline=True)
    Traceback (most recent call last):
    peasy.errors.NeedsNetwork: no/such-model is not in the cache, and peasy is offline.
    """
    if isinstance(model, LoadedModel):
        return model
    target = choose_device(device)
    if not isinstance(model, str | Path):
        loaded = _load_object(model, tokenizer)
    elif tokenizer is not None:
        raise InvalidInput("tokenizer can be given only with a transformers model object.")
    else:
        may_download = (lambda question: True) if yes else confirm
        loaded = LoadedModel(**vars(open_model(resolve_model(model, offline=offline, confirm=may_download))))
    if target != "cpu":
        loaded.model.to(target)
    return loaded


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


def _load_object(model: "Model | _TransformersModel", tokenizer: TokenizerSource | None) -> LoadedModel:
    """Load a transformers model object with all checks of a folder, sharing its weights; or wrap a model of peasy.

    If its parameter names differ from those in its files, it is saved to a folder and loaded from there.
    """
    from peasy.models.protocol import Model

    if isinstance(model, Model):
        assert tokenizer is None or isinstance(tokenizer, Tokenizer)
        return LoadedModel(type(model).__name__, model, tokenizer)
    if not isinstance(model, _TransformersModel):
        hint = "Give a name, a folder, a model loaded by peasy.load, or a transformers model."
        raise InvalidInput(f"{type(model).__name__} is not a model that peasy can inspect.", hint=hint)
    name = type(model).__name__
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        folder, resolved = Path(temporary), ResolvedModel("path", name, Path(temporary))
        if tokenizer is not None and not isinstance(tokenizer, Tokenizer):
            tokenizer.save_pretrained(folder)
        try:  # share the weight tensors: a change in one model changes the other
            model.config.save_pretrained(folder)
            config = SafeFolder(folder).read_json(CONFIG_FILE) | {"architectures": [name]}
            (folder / CONFIG_FILE).write_text(json.dumps(config), encoding="utf-8")
            if generation := getattr(model, "generation_config", None):
                (folder / GENERATION_FILE).write_text(generation.to_json_string(), encoding="utf-8")
            weights = InMemoryTensors(model.state_dict())
            bundle = open_model(resolved, tensors=TensorStore({key: (weights, key) for key in weights.info}))
        except InvalidInput:
            model.save_pretrained(folder)
            bundle = open_model(resolved)
    return LoadedModel(**vars(bundle) | {"folder": None})
