"""Model metrics: perplexity, masked-token loss, choice accuracy, BLEU/chrF of translations, STS, nearest neighbours."""

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
"""Progress callback: number of characters, or samples, just processed."""

_AT_ONCE = 1 << 18
_SCORES = 1 << 24
_POOL, _ROWS = 512, 64


def measure_text(
    loaded: "LoadedModel", pieces: Iterable[tuple[Sample, bool]], context: int, hear: Hear, whole: bool = False
) -> tuple[Tally, int]:
    """Return the cross-entropy of all tokens but the first, in non-overlapping windows, and the unknown-token count.

    `whole`: score each text separately after a bos token, as for a model that was trained on whole documents.
    """
    model, tokenizer = loaded.model, loaded.need_tokenizer()
    batch_size = max(1, min(_ROWS, _SCORES // (context * model.config.vocabulary)))
    bos = model.config.special.begin if whole else None
    tally, unknown, first = Tally(), 0, bos is None
    batches = (
        _tokens(tokenizer, pieces, context, batch_size) if bos is None else _texts(tokenizer, pieces, bos, context)
    )
    for windows, characters, size in batches:
        if first:
            size -= len(tokenizer.decode([windows.inputs[0, 0]]).encode())
            first = False
        unknown += _count_unknown(windows.targets, tokenizer.special.unk)
        tally.bytes += size
        _add(tally, model, windows)
        hear(characters)
    if not tally.tokens:
        raise InvalidInput("The text has fewer than two tokens.", hint="Give more text.")
    return tally, unknown


class _Windows:
    """Batch of token windows with next-token targets; missing targets are ignored by the loss."""

    def __init__(self, ids: NDArray[np.int64], context: int) -> None:
        count = len(ids) - 1
        rows = -(-count // context)
        inputs, targets = np.zeros(rows * context, np.int64), np.full(rows * context, HIDDEN, np.int64)
        inputs[:count], targets[:count] = ids[:-1], ids[1:]
        self.inputs, self.targets = inputs.reshape(rows, context), targets.reshape(rows, context)

    @property
    def real(self) -> NDArray[np.bool_]:
        """Padding mask: True where there is a target."""
        return self.targets != HIDDEN

    @classmethod
    def of_texts(cls, texts: Sequence[NDArray[np.int64]], context: int) -> "_Windows":
        """Build windows of several texts; no row crosses a text boundary."""
        windows = [cls(text, context) for text in texts]
        width = max(int(window.real.sum(axis=1).max()) for window in windows)  # no longer than the longest
        combined = cls.__new__(cls)
        combined.inputs = np.concatenate([window.inputs for window in windows])[:, :width]
        combined.targets = np.concatenate([window.targets for window in windows])[:, :width]
        return combined


def _texts(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], begin: int, context: int
) -> Iterator[tuple[_Windows, int, int]]:
    """Yield batches of whole texts, each after `begin`, with the number of characters and bytes read for the batch."""
    for chunk in _chunks(pieces, _ROWS):
        marked = [(sample.text if isinstance(sample, Labelled) else str(sample), ends) for sample, ends in chunk]
        rows = [np.concatenate([[begin], ids]) for ids in _with_ends(tokenizer, marked)]
        texts = [text for text, _ in marked]
        yield _Windows.of_texts(rows, context), sum(map(len, texts)), sum(len(text.encode()) for text in texts)


def _tokens(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], context: int, rows: int
) -> Iterator[tuple[_Windows, int, int]]:
    """Yield batches of consecutive windows with the number of characters and bytes read for each batch."""
    pending, characters, size = np.empty(0, np.int64), 0, 0
    batch_tokens = rows * context
    for chunk in _together(pieces):
        texts = [text for text, _ in chunk]
        pending = np.concatenate([pending, *_with_ends(tokenizer, chunk)])
        characters += sum(map(len, texts))
        size += sum(len(text.encode()) for text in texts)
        while len(pending) > batch_tokens:
            yield _Windows(pending[: batch_tokens + 1], context), characters, size
            pending, characters, size = pending[batch_tokens:], 0, 0
    if len(pending) > 1:
        yield _Windows(pending, context), characters, size


def _together(pieces: Iterable[tuple[Sample, bool]]) -> Iterator[list[tuple[str, bool]]]:
    """Group texts into chunks large enough for fast tokenization."""
    chunk: list[tuple[str, bool]] = []
    characters = 0
    for sample, ends in pieces:
        text = sample.text if isinstance(sample, Labelled) else str(sample)
        chunk.append((text, ends))
        characters += len(text)
        if characters > _AT_ONCE:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _with_ends(tokenizer: Tokenizer, some: list[tuple[str, bool]]) -> Iterator[NDArray[np.int64]]:
    eos = tokenizer.special.eos
    for ids, (_, ends) in zip(tokenizer.ids([text for text, _ in some], special=False), some, strict=True):
        yield np.array([*ids, eos] if ends and eos is not None else ids, dtype=np.int64)


def _count_unknown(targets: NDArray[np.int64], unknown: int | None) -> int:
    return 0 if unknown is None else int((targets == unknown).sum())


@torch.inference_mode()
def _add(tally: Tally, model: "Model", windows: _Windows) -> None:
    ids, targets = torch.from_numpy(windows.inputs), torch.from_numpy(windows.targets)
    padding_mask = None if windows.real.all() else torch.from_numpy(windows.real).to(model.device)
    count_scores(tally, model(ids.to(model.device), real=padding_mask), targets.to(model.device))


def count_scores(tally: Tally, scores: torch.Tensor, targets: torch.Tensor) -> None:
    """Add the cross-entropy and accuracy of these logits to a tally; ignored targets do not count."""
    counted = targets != HIDDEN
    logits = scores[counted].float()
    labels = targets[counted]
    tally.nats += float(functional.cross_entropy(logits, labels, reduction="sum").double())
    tally.right += int((logits.argmax(dim=-1) == labels).sum())
    tally.tokens += len(labels)


@torch.inference_mode()
def measure_masked(loaded: "LoadedModel", pieces: Iterable[tuple[Sample, bool]], context: int, hear: Hear) -> Tally:
    """Return the cross-entropy of masked tokens; the same tokens are masked every time."""
    model, tokenizer, tally = loaded.model, loaded.need_tokenizer(), Tally()
    for number, (windows, characters, _) in enumerate(_tokens(tokenizer, pieces, context, 16)):
        batch = {"ids": torch.from_numpy(windows.inputs), "real": torch.from_numpy(windows.real)}
        masked = MaskedToken().prepare(batch, model.config, generator(0, 0, number))
        hidden = model.hidden(masked["ids"].to(model.device), real=masked["real"].to(model.device))
        predicted = masked["targets"] != HIDDEN
        count_scores(
            tally, model.scores(hidden[predicted.to(model.device)]), masked["targets"][predicted].to(model.device)
        )
        hear(characters)
    if not tally.tokens:
        raise InvalidInput("The text has no token that could be masked.", hint="Give more text.")
    return tally


def measure_endings(loaded: "LoadedModel", probes: Iterable[Probe], context: int | None, hear: Hear) -> Right:
    """Accuracy of endings: the right one is likelier than the wrong one or, without a wrong one, decoded greedily."""
    accuracy = Right()
    for chunk in _chunks(probes, 16):
        rights = _chances(loaded, [probe.text for probe in chunk], context)
        wrongs = _chances(loaded, [probe.prompt + (probe.wrong or probe.right) for probe in chunk], context)
        for probe, right, wrong in zip(chunk, rights, wrongs, strict=True):
            correct = right.chance > wrong.chance if probe.wrong else right.writes_after(_length(loaded, probe.prompt))
            accuracy.add(probe.category, correct)
        hear(len(chunk))
    return accuracy


class _Chance:
    """Log-probability of a text, and which of its tokens greedy decoding would choose."""

    def __init__(self, chances: torch.Tensor, chosen: torch.Tensor, first: int) -> None:
        self.chance = float(chances.double().sum())
        self.chosen, self.first = chosen.tolist(), first

    def writes_after(self, start: int) -> bool:
        """Return whether greedy decoding would choose every token from position `start` on."""
        return all(self.chosen[start - self.first :])


def _length(loaded: "LoadedModel", text: str) -> int:
    return len(loaded.need_tokenizer().ids([text], special=False)[0])


@torch.inference_mode()
def _chances(loaded: "LoadedModel", texts: Sequence[str], context: int | None) -> list[_Chance]:
    """Score texts, each after a bos token if the model has one; a shared beginning counts for both alike."""
    model, tokenizer = loaded.model, loaded.need_tokenizer()
    bos = model.config.special.begin
    rows = [[*([] if bos is None else [bos]), *ids] for ids in tokenizer.ids(texts, special=False)]
    longest = max(map(len, rows))
    if context is not None and longest > context + 1:
        raise InvalidInput(
            f"A text has {longest:,} tokens, and the context of {loaded.name} is {context:,}.",
            hint="Train it with a longer context.",
        )
    ids, padding_mask = (tensor.to(model.device) for tensor in pad(rows))
    logprobs = functional.log_softmax(model(ids[:, :-1], real=padding_mask[:, :-1]).float(), dim=-1)
    token_logprobs = logprobs.gather(2, ids[:, 1:, None])[..., 0]
    chosen = logprobs.argmax(dim=-1) == ids[:, 1:]
    first = int(bos is None)  # without bos the first token is not predicted
    return [_Chance(token_logprobs[i, : len(row) - 1], chosen[i, : len(row) - 1], first) for i, row in enumerate(rows)]


def measure_translations(
    loaded: "LoadedModel", pairs: Iterable[Sample], hear: Hear
) -> tuple[Tally, Translations, Right, list[tuple[str, str, str]]]:
    """Translate each source greedily and compare with its target; also return the first wrong translations."""
    tally, scores, exact = Tally(), Translations(), Right()
    wrong: list[tuple[str, str, str]] = []
    for pool in _chunks((pair for pair in pairs if isinstance(pair, Pair)), _POOL):
        for chunk in _chunks(sorted(pool, key=lambda pair: len(pair.source)), _ROWS):
            _add_targets(tally, loaded, chunk)
            translations = translate(loaded, [pair.source for pair in chunk])
            scores.add(translations, [pair.target for pair in chunk])
            for pair, text in zip(chunk, translations, strict=True):
                exact.add(pair.category, text.strip() == pair.target.strip())
                if text.strip() != pair.target.strip() and len(wrong) < 5:
                    wrong.append((pair.source, pair.target, text))
            hear(len(chunk))
    return tally, scores, exact, wrong


def translate(loaded: "LoadedModel", sources: Sequence[str]) -> list[str]:
    """Greedy decoding until eos, at most three times the source length plus 16 tokens."""
    context = getattr(loaded.model.config, "context", None)
    rows = [ids[:context] for ids in loaded.need_tokenizer().ids(sources)]
    max_tokens = 3 * max(map(len, rows)) + 16
    max_tokens = max_tokens if context is None else min(max_tokens, context - 1)
    target_tokenizer = loaded.target_tokenizer or loaded.need_tokenizer()
    return [
        target_tokenizer.decode(ids)
        for ids in generate(loaded.model, source=rows, sampling=Sampling(max_tokens=max_tokens))
    ]


@torch.inference_mode()
def _add_targets(tally: Tally, loaded: "LoadedModel", pairs: Sequence[Pair]) -> None:
    """Add the teacher-forced cross-entropy of the reference translations to a tally."""
    model, special = loaded.model, loaded.model.config.special
    target_tokenizer, context = (
        loaded.target_tokenizer or loaded.need_tokenizer(),
        getattr(model.config, "context", None),
    )
    source, source_mask = pad([i[:context] for i in loaded.need_tokenizer().ids([p.source for p in pairs])])
    decoder_start, eos = [] if special.start is None else [special.start], special.end[:1]
    rows = [
        [*decoder_start, *ids, *eos] for ids in target_tokenizer.ids([pair.target for pair in pairs], special=False)
    ]
    ids, padding_mask = pad([row[: None if context is None else context + 1] for row in rows])
    targets = ids[:, 1:].masked_fill(~padding_mask[:, 1:], HIDDEN)
    encoder_inputs = {"source": source.to(model.device), "source_real": source_mask.to(model.device)}
    logits = model(ids[:, :-1].to(model.device), real=padding_mask[:, :-1].to(model.device), **encoder_inputs)
    count_scores(tally, logits, targets.to(model.device))
    tally.bytes += sum(len(pair.target.encode()) for pair in pairs)


def measure_sts(loaded: "LoadedModel", rows: Iterable[tuple[str, str, float]], hear: Hear) -> tuple[float, int]:
    """Return Spearman's correlation of cosine similarities with human scores, and the number of pairs."""
    cosines: list[float] = []
    human_scores: list[float] = []
    for chunk in _chunks(rows, _ROWS):
        left, right = (_unit(loaded.embed([row[side] for row in chunk])) for side in (0, 1))
        cosines += (left * right).sum(axis=1).tolist()
        human_scores += [row[2] for row in chunk]
        hear(len(chunk))
    return spearman(cosines, human_scores), len(human_scores)


def measure_partners(loaded: "LoadedModel", samples: Iterable[Sample], hear: Hear, among: int = 256) -> Right:
    """Accuracy of nearest-neighbour retrieval: the nearest of `among` texts is the partner, or has the same label."""
    accuracy = Right()
    for chunk in _chunks(samples, among):
        if isinstance(chunk[0], Pair):
            nearest = _nearest(loaded, [p.source for p in chunk], [p.target for p in chunk])
            for i, (pair, match) in enumerate(zip(chunk, nearest, strict=True)):
                accuracy.add(pair.category, match == i)
        elif len(chunk) > 1:
            nearest = _nearest(loaded, [s.text for s in chunk])
            for sample, match in zip(chunk, nearest, strict=True):
                accuracy.add(sample.label, chunk[match].label == sample.label)
        hear(len(chunk))
    return accuracy


def _nearest(loaded: "LoadedModel", left: list[str], right: list[str] | None = None) -> list[int]:
    unit_left = _unit(loaded.embed(left))
    cosines = unit_left @ (unit_left if right is None else _unit(loaded.embed(right))).T
    if right is None:
        np.fill_diagonal(cosines, -2.0)
    return [int(index) for index in cosines.argmax(axis=1)]


def _unit(vectors: Any) -> NDArray[np.float64]:
    array = np.asarray(vectors, dtype=np.float64)
    return array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)


def _chunks(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
