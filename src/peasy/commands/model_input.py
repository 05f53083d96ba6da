"""Labelled model input: token ids of a text (and of a translation), with a label for every token; edits of it."""

from collections.abc import Iterable, Sequence
from itertools import islice
from numbers import Integral

from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.errors import InvalidInput
from peasy.generation.decode import generate
from peasy.generation.sampling_params import SamplingParams
from peasy.inspection.apply_edits import EditContext
from peasy.inspection.edit import EditLike, Texts
from peasy.inspection.forward import ModelInput, check_input
from peasy.inspection.results import Tokens, attention_axes
from peasy.inspection.words import label_ids, label_tokens
from peasy.parameters import Record

_MAX_TEXTS = 256
"""Texts that are read of a data set; a list of texts is read completely."""


class LabelledInput(Record, eq=False):
    """Model input with token labels. `outputs` are a translator's output tokens: the target shifted by one."""

    model_input: ModelInput
    tokens: Tokens
    target: Tokens | None = None
    outputs: Tokens | None = None


_TargetText = str | Sequence[int] | None
"""A translation as text, or as the token ids that the model generated."""


def label_prompt(loaded: LoadedModel, text: str, *, add_special_tokens: bool = True) -> Tokens:
    """Tokenize a text as the model reads it, and label its tokens."""
    tokenizer = loaded.require_tokenizer()
    encoding = loaded.encode_text(text, add_special_tokens=add_special_tokens)
    if encoding.ids:
        return label_tokens(encoding, tokenizer)
    ids = loaded.encode_prompt(text, add_special_tokens=add_special_tokens)  # an empty text is only <bos>
    return label_ids(ids, tokenizer.pieces(ids), text)


def make_input(
    loaded: LoadedModel, text: str | Sequence[int], target: _TargetText = None, *, add_special_tokens: bool = True
) -> LabelledInput:
    """Tokenize a text for a model. A translator without a target decodes one greedily."""
    if isinstance(text, str):
        if not text.strip():
            raise InvalidInput("The text is empty.", hint="Give at least one word.")
        tokens = label_prompt(loaded, text, add_special_tokens=add_special_tokens)
    else:
        given = list(text) if isinstance(text, Iterable) and not isinstance(text, bytes | dict) else [None]
        if not all(isinstance(id, Integral) for id in given):
            raise InvalidInput(f"A {type(text).__name__} is no text.", hint="Give a text, or a list of token ids.")
        ids = [int(id) for id in given if id is not None]
        tokens = label_ids(ids, None if loaded.tokenizer is None else loaded.tokenizer.pieces(ids))
    if not loaded.model.is_encoder_decoder:
        labelled = LabelledInput(ModelInput(tokens.ids, None if target is None else ()), tokens)
    else:
        labelled = _with_target(loaded, tokens, target)
    check_input(loaded.model, labelled.model_input)
    return labelled


def _with_target(loaded: LoadedModel, tokens: Tokens, target: _TargetText) -> LabelledInput:
    special, tokenizer = loaded.model.config.special_tokens, loaded.output_tokenizer()
    if special.decoder_start is None:
        raise InvalidInput(f"{loaded.name} has no decoder start token, so its translations cannot be inspected.")
    if isinstance(target, str):
        output_ids = [*tokenizer.encode(target, add_special_tokens=False).ids, *special.eos[:1]]
    else:
        if target is None:
            sampling = SamplingParams(max_tokens=loaded.max_translation_tokens(len(tokens)))
            target = generate(loaded.model, source=[list(tokens.ids)], sampling=sampling)[0]
        output_ids = list(target)
    content = [id for id in output_ids if id not in special.eos]
    text = target if isinstance(target, str) else tokenizer.decode(content)
    encoding = tokenizer.encode(text, add_special_tokens=False)
    if list(encoding.ids) == content:
        inputs = label_tokens(encoding, tokenizer, prefix_ids=special.decoder_prompt)
        outputs = label_tokens(encoding, tokenizer, suffix_ids=output_ids[len(content) :])
    else:
        ids = [*special.decoder_prompt, *content]
        inputs = label_ids(ids, [tokenizer.piece(id) for id in ids], text)
        outputs = label_ids(output_ids, [tokenizer.piece(id) for id in output_ids], text)
    return LabelledInput(ModelInput(tokens.ids, inputs.ids), tokens, inputs, outputs)


def word_token_id(loaded: LoadedModel, word: str) -> int:
    """First token id of a word, after a space or without one, preferring a single token."""
    tokenizer = loaded.output_tokenizer()
    encodings = [tokenizer.encode(text, add_special_tokens=False).ids for text in (f" {word}", word)]
    ids = min(filter(None, encodings), key=lambda ids: len(ids) > 1, default=())
    if not ids:
        raise InvalidInput(f'"{word}" has no token in the vocabulary of this model.')
    return ids[0]


def as_edits(edit: EditLike | Sequence[EditLike] | None) -> tuple[EditLike, ...]:
    """Return the edits of an argument that may be one edit, several or None."""
    return () if edit is None else tuple(edit) if isinstance(edit, Sequence) else (edit,)


def edit_context(loaded: LoadedModel, inputs: LabelledInput | None = None) -> EditContext:
    """Return what edits are resolved with; words can be named only in the text of `inputs`."""

    def read_texts(data: Texts) -> list[ModelInput]:
        if not isinstance(data, str):
            return [make_input(loaded, text).model_input for text in data]
        texts = islice(open_corpus(data).texts("valid"), _MAX_TEXTS)
        rows = (loaded.encode_prompt(text)[: loaded.max_seq_len] for text in texts)
        return [make_input(loaded, ids).model_input for ids in rows if ids]

    axes = None if inputs is None else lambda path: attention_axes(path, inputs.tokens, inputs.target)
    return EditContext(loaded.model, axes, lambda text: make_input(loaded, text).model_input, read_texts)
