"""Labelled model input: token ids of a text (and of a translation), with a label for every token."""

from collections.abc import Sequence
from dataclasses import dataclass

from peasy.errors import InvalidInput
from peasy.looking.label import Tokens
from peasy.looking.reading import Reading, check_reading
from peasy.looking.words import tokens_of, tokens_of_ids
from peasy.nn.place import Place
from peasy.text import Tokenizer
from peasy.workbench.load import LoadedModel


@dataclass(frozen=True, eq=False)
class Passage:
    """Model input with token labels. `written` are a translator's output tokens: the target shifted by one."""

    reading: Reading
    tokens: Tokens
    target: Tokens | None = None
    written: Tokens | None = None

    def axes(self, place: Place) -> tuple[Tokens, Tokens]:
        """Return the query tokens and the key tokens of an attention module."""
        queries = self.target if self.target is not None and place.stack == "decoder" else self.tokens
        return queries, self.tokens if place.part == "cross_attention" else queries


Target = str | Sequence[int] | None
"""A translation as text, or as the token ids that the model generated."""


def open_passage(loaded: LoadedModel, text: str | Sequence[int], target: Target = None) -> Passage:
    """Tokenize a text for a model. A translator without a target decodes one greedily."""
    if isinstance(text, str):
        if not text.strip():
            raise InvalidInput("The text is empty.", hint="Give at least one word.")
        ids = loaded.prompt(text)
        tokens = _named(ids, loaded.need_tokenizer(), text)
    else:
        ids = [int(id) for id in text]
        pieces = None if loaded.tokenizer is None else [loaded.tokenizer.piece(id) for id in ids]
        tokens = tokens_of_ids(ids, pieces)
    if not loaded.model.reads_source:
        passage = Passage(Reading(tuple(ids), None if target is None else ()), tokens)
    else:
        passage = _answered(loaded, tokens, target)
    check_reading(loaded.model, passage.reading)
    return passage


def _answered(loaded: LoadedModel, tokens: Tokens, target: Target) -> Passage:
    special, tokenizer = loaded.model.config.special, loaded.answers()
    start = special.start
    if start is None:
        raise InvalidInput(f"{loaded.name} has no decoder start token, so its translations cannot be inspected.")
    if isinstance(target, str):
        written = [*tokenizer.encode(target, special=False).ids, *special.end[:1]]
    else:
        written = _write(loaded, tokens.ids) if target is None else list(target)
    content = [id for id in written if id not in special.end]
    text = target if isinstance(target, str) else tokenizer.decode(content)
    encoding = tokenizer.encode(text, special=False)
    if list(encoding.ids) == content:
        inputs = tokens_of(encoding, tokenizer, before=[start])
        outputs = tokens_of(encoding, tokenizer, after=written[len(content) :])
    else:
        inputs = tokens_of_ids([start, *content], [tokenizer.piece(id) for id in (start, *content)], text)
        outputs = tokens_of_ids(written, [tokenizer.piece(id) for id in written], text)
    return Passage(Reading(tokens.ids, inputs.ids), tokens, inputs, outputs)


def _write(loaded: LoadedModel, source: Sequence[int]) -> list[int]:
    from peasy.generation.decode import generate
    from peasy.generation.sampling import Sampling

    context = getattr(loaded.model.config, "context", None)
    max_tokens = 3 * len(source) + 16
    max_tokens = max_tokens if context is None else min(max_tokens, context - 1)
    return generate(loaded.model, source=[list(source)], sampling=Sampling(max_tokens=max_tokens))[0]


def _named(ids: Sequence[int], tokenizer: Tokenizer, text: str) -> Tokens:
    encoding = tokenizer.encode(text)
    if list(encoding.ids) == list(ids):
        return tokens_of(encoding, tokenizer)
    return tokens_of_ids(ids, [tokenizer.piece(id) for id in ids], text)
