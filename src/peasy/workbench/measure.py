"""How a model is measured: on running text, on endings that must be chosen, on translations, on sentences."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peasy.corpora import Labelled, Pair, Probe, Sample
from peasy.errors import InvalidInput
from peasy.generation.decode import Sampling, generate
from peasy.models.encoder import pad
from peasy.text import Tokenizer
from peasy.training.chance import generator
from peasy.training.metric import Right, Tally, Translations, spearman
from peasy.training.objective import HIDDEN, MaskedToken

if TYPE_CHECKING:
    from peasy.models.protocol import Model
    from peasy.workbench.load import LoadedModel

Hear = Callable[[int], None]
"""Told how many characters, or samples, were just done."""

_AT_ONCE = 1 << 18
_SCORES = 1 << 24
_POOL, _ROWS = 512, 64


def measure_text(
    loaded: "LoadedModel", pieces: Iterable[tuple[Sample, bool]], context: int, hear: Hear, whole: bool = False
) -> tuple[Tally, int]:
    """The cost of every token of a running text but the first, in windows that do not overlap.

    `whole`: text by text instead, each after an end token, as a model reads that was trained on whole documents.
    Also tells how many tokens the tokenizer did not know.
    """
    model, tokenizer = loaded.model, loaded.need_tokenizer()
    rows = max(1, min(_ROWS, _SCORES // (context * model.config.vocabulary)))
    begin = model.config.special.begin if whole else None
    tally, unknown, first = Tally(), 0, begin is None
    found = _tokens(tokenizer, pieces, context, rows) if begin is None else _texts(tokenizer, pieces, begin, context)
    for ids, characters, size in found:
        if first:
            size -= len(tokenizer.decode([ids.inputs[0, 0]]).encode())
            first = False
        unknown += _count_unknown(ids.targets, tokenizer.special.unk)
        tally.bytes += size
        _add(tally, model, ids)
        hear(characters)
    if not tally.tokens:
        raise InvalidInput("There are fewer than two tokens to look at.", hint="Give more text.")
    return tally, unknown


class _Windows:
    """Rows of tokens with the token after each; a target that is not there is hidden."""

    def __init__(self, ids: NDArray[np.int64], context: int) -> None:
        count = len(ids) - 1
        rows = -(-count // context)
        inputs, targets = np.zeros(rows * context, np.int64), np.full(rows * context, HIDDEN, np.int64)
        inputs[:count], targets[:count] = ids[:-1], ids[1:]
        self.inputs, self.targets = inputs.reshape(rows, context), targets.reshape(rows, context)

    @property
    def real(self) -> NDArray[np.bool_]:
        """Where a target is asked for."""
        return self.targets != HIDDEN

    @classmethod
    def of_texts(cls, texts: Sequence[NDArray[np.int64]], context: int) -> "_Windows":
        """Each text cut into rows of its own."""
        each = [cls(text, context) for text in texts]
        width = max(int(one.real.sum(axis=1).max()) for one in each)  # no longer than the longest
        together = cls.__new__(cls)
        together.inputs = np.concatenate([one.inputs for one in each])[:, :width]
        together.targets = np.concatenate([one.targets for one in each])[:, :width]
        return together


def _texts(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], begin: int, context: int
) -> Iterator[tuple[_Windows, int, int]]:
    """Text by text, each after `begin`; those of a batch with the characters and bytes that were read for it."""
    for some in _chunks(pieces, _ROWS):
        texts = [(sample.text if isinstance(sample, Labelled) else str(sample), ends) for sample, ends in some]
        rows = [np.concatenate([[begin], ids]) for ids in _with_ends(tokenizer, texts)]
        said = [text for text, _ in texts]
        yield _Windows.of_texts(rows, context), sum(map(len, said)), sum(len(text.encode()) for text in said)


def _tokens(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], context: int, rows: int
) -> Iterator[tuple[_Windows, int, int]]:
    """Windows in order, each batch with the characters and bytes that were read for it."""
    held, characters, size = np.empty(0, np.int64), 0, 0
    whole = rows * context
    for some in _together(pieces):
        texts = [text for text, _ in some]
        held = np.concatenate([held, *_with_ends(tokenizer, some)])
        characters += sum(map(len, texts))
        size += sum(len(text.encode()) for text in texts)
        while len(held) > whole:
            yield _Windows(held[: whole + 1], context), characters, size
            held, characters, size = held[whole:], 0, 0
    if len(held) > 1:
        yield _Windows(held, context), characters, size


def _together(pieces: Iterable[tuple[Sample, bool]]) -> Iterator[list[tuple[str, bool]]]:
    """Enough text at once for the tokenizer to be fast, never more than a little."""
    some: list[tuple[str, bool]] = []
    waiting = 0
    for sample, ends in pieces:
        text = sample.text if isinstance(sample, Labelled) else str(sample)
        some.append((text, ends))
        waiting += len(text)
        if waiting > _AT_ONCE:
            yield some
            some, waiting = [], 0
    if some:
        yield some


def _with_ends(tokenizer: Tokenizer, some: list[tuple[str, bool]]) -> Iterator[NDArray[np.int64]]:
    end = tokenizer.special.eos
    for ids, (_, ends) in zip(tokenizer.ids([text for text, _ in some], special=False), some, strict=True):
        yield np.array([*ids, end] if ends and end is not None else ids, dtype=np.int64)


def _count_unknown(targets: NDArray[np.int64], unknown: int | None) -> int:
    return 0 if unknown is None else int((targets == unknown).sum())


@torch.inference_mode()
def _add(tally: Tally, model: "Model", windows: _Windows) -> None:
    ids, targets = torch.from_numpy(windows.inputs), torch.from_numpy(windows.targets)
    real = None if windows.real.all() else torch.from_numpy(windows.real).to(model.device)
    count_scores(tally, model(ids.to(model.device), real=real), targets.to(model.device))


def count_scores(tally: Tally, scores: torch.Tensor, targets: torch.Tensor) -> None:
    """Add what these scores say about the targets that are asked for."""
    asked = targets != HIDDEN
    flat = scores[asked].float()
    wanted = targets[asked]
    tally.nats += float(functional.cross_entropy(flat, wanted, reduction="sum").double())
    tally.right += int((flat.argmax(dim=-1) == wanted).sum())
    tally.tokens += len(wanted)


@torch.inference_mode()
def measure_masked(loaded: "LoadedModel", pieces: Iterable[tuple[Sample, bool]], context: int, hear: Hear) -> Tally:
    """The cost of words that are covered, the same ones each time."""
    model, tokenizer, tally = loaded.model, loaded.need_tokenizer(), Tally()
    for number, (windows, characters, _) in enumerate(_tokens(tokenizer, pieces, context, 16)):
        batch = {"ids": torch.from_numpy(windows.inputs), "real": torch.from_numpy(windows.real)}
        asked = MaskedToken().prepare(batch, model.config, generator(0, 0, number))
        hidden = model.hidden(asked["ids"].to(model.device), real=asked["real"].to(model.device))
        where = asked["targets"] != HIDDEN
        count_scores(tally, model.scores(hidden[where.to(model.device)]), asked["targets"][where].to(model.device))
        hear(characters)
    if not tally.tokens:
        raise InvalidInput("There is not one word to cover.", hint="Give more text.")
    return tally


def measure_endings(loaded: "LoadedModel", probes: Iterable[Probe], context: int | None, hear: Hear) -> Right:
    """Which ending a model finds likelier, where there are two; else whether it would write the right one."""
    found = Right()
    for some in _chunks(probes, 16):
        rights = _chances(loaded, [probe.text for probe in some], context)
        wrongs = _chances(loaded, [probe.prompt + (probe.wrong or probe.right) for probe in some], context)
        for probe, right, wrong in zip(some, rights, wrongs, strict=True):
            good = right.chance > wrong.chance if probe.wrong else right.writes_after(_length(loaded, probe.prompt))
            found.add(probe.category, good)
        hear(len(some))
    return found


class _Chance:
    """The logarithm of a text's chance, and which of its tokens would have been chosen."""

    def __init__(self, chances: torch.Tensor, chosen: torch.Tensor, first: int) -> None:
        self.chance = float(chances.double().sum())
        self.chosen, self.first = chosen.tolist(), first

    def writes_after(self, start: int) -> bool:
        """Whether every token from this place of the text on would have been chosen."""
        return all(self.chosen[start - self.first :])


def _length(loaded: "LoadedModel", text: str) -> int:
    return len(loaded.need_tokenizer().ids([text], special=False)[0])


@torch.inference_mode()
def _chances(loaded: "LoadedModel", texts: Sequence[str], context: int | None) -> list[_Chance]:
    """Texts as they stand in a corpus: after the end of another one. What two texts share counts for both alike."""
    model, tokenizer = loaded.model, loaded.need_tokenizer()
    begin = model.config.special.begin
    rows = [[*([] if begin is None else [begin]), *ids] for ids in tokenizer.ids(texts, special=False)]
    longest = max(map(len, rows))
    if context is not None and longest > context + 1:
        raise InvalidInput(
            f"A text has {longest:,} tokens, and {loaded.name} reads {context:,} at once.",
            hint="Train it with a longer context.",
        )
    ids, real = (each.to(model.device) for each in pad(rows))
    chances = functional.log_softmax(model(ids[:, :-1], real=real[:, :-1]).float(), dim=-1)
    each = chances.gather(2, ids[:, 1:, None])[..., 0]
    chosen = chances.argmax(dim=-1) == ids[:, 1:]
    first = int(begin is None)  # a token that nothing stands before is not predicted
    return [_Chance(each[i, : len(row) - 1], chosen[i, : len(row) - 1], first) for i, row in enumerate(rows)]


def measure_translations(
    loaded: "LoadedModel", pairs: Iterable[Sample], hear: Hear
) -> tuple[Tally, Translations, Right, list[tuple[str, str, str]]]:
    """Each source translated greedily and held against its target; the first wrong ones are kept to be shown."""
    tally, scores, exact = Tally(), Translations(), Right()
    wrong: list[tuple[str, str, str]] = []
    for pool in _chunks((pair for pair in pairs if isinstance(pair, Pair)), _POOL):
        for some in _chunks(sorted(pool, key=lambda pair: len(pair.source)), _ROWS):
            _add_targets(tally, loaded, some)
            written = translate(loaded, [pair.source for pair in some])
            scores.add(written, [pair.target for pair in some])
            for pair, text in zip(some, written, strict=True):
                exact.add(pair.category, text.strip() == pair.target.strip())
                if text.strip() != pair.target.strip() and len(wrong) < 5:
                    wrong.append((pair.source, pair.target, text))
            hear(len(some))
    return tally, scores, exact, wrong


def translate(loaded: "LoadedModel", sources: Sequence[str]) -> list[str]:
    """The best token each time, until the end token or three times the length of the source and a little."""
    context = getattr(loaded.model.config, "context", None)
    rows = [ids[:context] for ids in loaded.need_tokenizer().ids(sources)]
    most = 3 * max(map(len, rows)) + 16
    most = most if context is None else min(most, context - 1)
    answers = loaded.target_tokenizer or loaded.need_tokenizer()
    return [answers.decode(ids) for ids in generate(loaded.model, source=rows, sampling=Sampling(max_tokens=most))]


@torch.inference_mode()
def _add_targets(tally: Tally, loaded: "LoadedModel", pairs: Sequence[Pair]) -> None:
    """The cost of the right translations, each token after the right ones before it."""
    model, special = loaded.model, loaded.model.config.special
    answers, context = loaded.target_tokenizer or loaded.need_tokenizer(), getattr(model.config, "context", None)
    source, source_real = pad([i[:context] for i in loaded.need_tokenizer().ids([p.source for p in pairs])])
    start, end = [] if special.start is None else [special.start], special.end[:1]
    rows = [[*start, *ids, *end] for ids in answers.ids([pair.target for pair in pairs], special=False)]
    ids, real = pad([row[: None if context is None else context + 1] for row in rows])
    targets = ids[:, 1:].masked_fill(~real[:, 1:], HIDDEN)
    where = {"source": source.to(model.device), "source_real": source_real.to(model.device)}
    scores = model(ids[:, :-1].to(model.device), real=real[:, :-1].to(model.device), **where)
    count_scores(tally, scores, targets.to(model.device))
    tally.bytes += sum(len(pair.target.encode()) for pair in pairs)


def measure_sts(loaded: "LoadedModel", rows: Iterable[tuple[str, str, float]], hear: Hear) -> tuple[float, int]:
    """Spearman's correlation of cosines with people's scores, and over how many pairs."""
    cosines: list[float] = []
    wanted: list[float] = []
    for some in _chunks(rows, _ROWS):
        left, right = (_unit(loaded.embed([row[side] for row in some])) for side in (0, 1))
        cosines += (left * right).sum(axis=1).tolist()
        wanted += [row[2] for row in some]
        hear(len(some))
    return spearman(cosines, wanted), len(wanted)


def measure_partners(loaded: "LoadedModel", samples: Iterable[Sample], hear: Hear, among: int = 256) -> Right:
    """How often a text's nearest one is its partner, or has its label, among so many."""
    found = Right()
    for some in _chunks(samples, among):
        if isinstance(some[0], Pair):
            near = _nearest(loaded, [p.source for p in some], [p.target for p in some])
            for i, (pair, at) in enumerate(zip(some, near, strict=True)):
                found.add(pair.category, at == i)
        elif len(some) > 1:
            near = _nearest(loaded, [s.text for s in some])
            for sample, at in zip(some, near, strict=True):
                found.add(sample.label, some[at].label == sample.label)
        hear(len(some))
    return found


def _nearest(loaded: "LoadedModel", left: list[str], right: list[str] | None = None) -> list[int]:
    first = _unit(loaded.embed(left))
    cosines = first @ (first if right is None else _unit(loaded.embed(right))).T
    if right is None:
        np.fill_diagonal(cosines, -2.0)
    return [int(at) for at in cosines.argmax(axis=1)]


def _unit(vectors: Any) -> NDArray[np.float64]:
    array = np.asarray(vectors, dtype=np.float64)
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while some := list(islice(iterator, size)):
        yield some
