"""From what a person types to what a model reads: a text, a translator's answer, and a name for every token."""

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
    """A text ready to be looked at. `written` are the tokens that a translator's steps wrote: its target, one later."""

    reading: Reading
    tokens: Tokens
    target: Tokens | None = None
    written: Tokens | None = None

    def axes(self, place: Place) -> tuple[Tokens, Tokens]:
        """Whose the queries and whose the keys of a place are."""
        own = self.target if self.target is not None and place.stack == "decoder" else self.tokens
        return own, self.tokens if place.part == "cross_attention" else own


Target = str | Sequence[int] | None
"""A translator's answer, or the very ids of one that it wrote."""


def open_passage(loaded: LoadedModel, text: str | Sequence[int], target: Target = None) -> Passage:
    """The text as the model reads it. A translator that is given no target writes one itself, greedily."""
    if isinstance(text, str):
        if not text.strip():
            raise InvalidInput("There is no text to look at.", hint="Give at least one word.")
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
    special, answers = loaded.model.config.special, loaded.answers()
    if special.start is None:
        raise InvalidInput(f"{loaded.name} has no start token: its answers cannot be looked at.")
    if isinstance(target, str):
        written = [*answers.encode(target, special=False).ids, *special.end[:1]]
    else:
        written = _write(loaded, tokens.ids) if target is None else list(target)
    plain = [id for id in written if id not in special.end]
    text = target if isinstance(target, str) else answers.decode(plain)
    encoding = answers.encode(text, special=False)
    if list(encoding.ids) == plain:
        read = tokens_of(encoding, answers, before=[special.start])
        said = tokens_of(encoding, answers, after=written[len(plain) :])
    else:
        read = tokens_of_ids([special.start, *plain], [answers.piece(id) for id in (special.start, *plain)], text)
        said = tokens_of_ids(written, [answers.piece(id) for id in written], text)
    return Passage(Reading(tokens.ids, read.ids), tokens, read, said)


def _write(loaded: LoadedModel, source: Sequence[int]) -> list[int]:
    from peasy.generation.decode import generate
    from peasy.generation.sampling import Sampling

    context = getattr(loaded.model.config, "context", None)
    most = 3 * len(source) + 16
    most = most if context is None else min(most, context - 1)
    return generate(loaded.model, source=[list(source)], sampling=Sampling(max_tokens=most))[0]


def _named(ids: Sequence[int], tokenizer: Tokenizer, text: str) -> Tokens:
    encoding = tokenizer.encode(text)
    if list(encoding.ids) == list(ids):
        return tokens_of(encoding, tokenizer)
    return tokens_of_ids(ids, [tokenizer.piece(id) for id in ids], text)
