"""Model metrics: perplexity, masked-token loss, choice accuracy, BLEU/chrF of translations, STS, nearest neighbours."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peasy.datasets import LabelledText, Probe, Sample, TextPair
from peasy.errors import InvalidInput
from peasy.generation.decode import SamplingParams, generate
from peasy.models.encoder import pad_sequences
from peasy.tokenization import Tokenizer
from peasy.training.metric import AccuracyCounter, TokenPredictionStats, TranslationMetrics, spearman
from peasy.training.objective import IGNORE_INDEX, MaskedToken
from peasy.training.rng import seeded_generator

if TYPE_CHECKING:
    from peasy.commands.load import LoadedModel
    from peasy.models.protocol import Model

OnProgress = Callable[[int], None]
"""Progress callback: number of characters, or samples, just processed."""

_TOKENIZE_CHARS = 1 << 18
_MAX_LOGITS = 1 << 24
_SORT_POOL, _BATCH_SIZE = 512, 64


def text_loss(
    loaded: "LoadedModel",
    pieces: Iterable[tuple[Sample, bool]],
    context: int,
    on_progress: OnProgress,
    per_text: bool = False,
) -> tuple[TokenPredictionStats, int]:
    """Return the cross-entropy of all tokens but the first, in non-overlapping windows, and the unknown-token count.

    `per_text`: score each text separately after a bos token, as for a model that was trained on whole documents.
    """
    model, tokenizer = loaded.model, loaded.require_tokenizer()
    batch_size = max(1, min(_BATCH_SIZE, _MAX_LOGITS // (context * model.config.vocab_size)))
    bos = model.config.special_tokens.bos if per_text else None
    tally, unknown, first = TokenPredictionStats(), 0, bos is None
    batches = (
        _window_batches(tokenizer, pieces, context, batch_size)
        if bos is None
        else _text_batches(tokenizer, pieces, bos, context)
    )
    for windows, characters, size in batches:
        if first:
            size -= len(tokenizer.decode([windows.inputs[0, 0]]).encode())
            first = False
        unknown += _count_unknown(windows.targets, tokenizer.special_tokens.unk)
        tally.bytes += size
        _add_windows(tally, model, windows)
        on_progress(characters)
    if not tally.tokens:
        raise InvalidInput("The text has fewer than two tokens.", hint="Give more text.")
    return tally, unknown


class _TokenWindows:
    """Batch of token windows with next-token targets; missing targets are ignored by the loss."""

    def __init__(self, ids: NDArray[np.int64], context: int) -> None:
        count = len(ids) - 1
        rows = -(-count // context)
        inputs, targets = np.zeros(rows * context, np.int64), np.full(rows * context, IGNORE_INDEX, np.int64)
        inputs[:count], targets[:count] = ids[:-1], ids[1:]
        self.inputs, self.targets = inputs.reshape(rows, context), targets.reshape(rows, context)

    @property
    def padding_mask(self) -> NDArray[np.bool_]:
        """Padding mask: True where there is a target."""
        return self.targets != IGNORE_INDEX

    @classmethod
    def of_texts(cls, texts: Sequence[NDArray[np.int64]], context: int) -> "_TokenWindows":
        """Build windows of several texts; no row crosses a text boundary."""
        windows = [cls(text, context) for text in texts]
        width = max(int(window.padding_mask.sum(axis=1).max()) for window in windows)  # no longer than the longest
        combined = cls.__new__(cls)
        combined.inputs = np.concatenate([window.inputs for window in windows])[:, :width]
        combined.targets = np.concatenate([window.targets for window in windows])[:, :width]
        return combined


def _text_batches(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], bos: int, context: int
) -> Iterator[tuple[_TokenWindows, int, int]]:
    """Yield batches of whole texts, each after `bos`, with the number of characters and bytes read for the batch."""
    for chunk in _chunks(pieces, _BATCH_SIZE):
        marked = [(sample.text if isinstance(sample, LabelledText) else str(sample), ends) for sample, ends in chunk]
        rows = [np.concatenate([[bos], ids]) for ids in _encode_with_eos(tokenizer, marked)]
        texts = [text for text, _ in marked]
        yield _TokenWindows.of_texts(rows, context), sum(map(len, texts)), sum(len(text.encode()) for text in texts)


def _window_batches(
    tokenizer: Tokenizer, pieces: Iterable[tuple[Sample, bool]], context: int, batch_size: int
) -> Iterator[tuple[_TokenWindows, int, int]]:
    """Yield batches of consecutive windows with the number of characters and bytes read for each batch."""
    pending, characters, size = np.empty(0, np.int64), 0, 0
    batch_tokens = batch_size * context
    for chunk in _tokenizer_chunks(pieces):
        texts = [text for text, _ in chunk]
        pending = np.concatenate([pending, *_encode_with_eos(tokenizer, chunk)])
        characters += sum(map(len, texts))
        size += sum(len(text.encode()) for text in texts)
        while len(pending) > batch_tokens:
            yield _TokenWindows(pending[: batch_tokens + 1], context), characters, size
            pending, characters, size = pending[batch_tokens:], 0, 0
    if len(pending) > 1:
        yield _TokenWindows(pending, context), characters, size


def _tokenizer_chunks(pieces: Iterable[tuple[Sample, bool]]) -> Iterator[list[tuple[str, bool]]]:
    """Group texts into chunks large enough for fast tokenization."""
    chunk: list[tuple[str, bool]] = []
    characters = 0
    for sample, ends in pieces:
        text = sample.text if isinstance(sample, LabelledText) else str(sample)
        chunk.append((text, ends))
        characters += len(text)
        if characters > _TOKENIZE_CHARS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _encode_with_eos(tokenizer: Tokenizer, texts: list[tuple[str, bool]]) -> Iterator[NDArray[np.int64]]:
    eos = tokenizer.special_tokens.eos
    for ids, (_, ends) in zip(
        tokenizer.encode_batch_ids([text for text, _ in texts], add_special_tokens=False), texts, strict=True
    ):
        yield np.array([*ids, eos] if ends and eos is not None else ids, dtype=np.int64)


def _count_unknown(targets: NDArray[np.int64], unknown: int | None) -> int:
    return 0 if unknown is None else int((targets == unknown).sum())


@torch.inference_mode()
def _add_windows(tally: TokenPredictionStats, model: "Model", windows: _TokenWindows) -> None:
    ids, targets = torch.from_numpy(windows.inputs), torch.from_numpy(windows.targets)
    padding_mask = None if windows.padding_mask.all() else torch.from_numpy(windows.padding_mask).to(model.device)
    add_logits(tally, model(ids.to(model.device), padding_mask=padding_mask), targets.to(model.device))


def add_logits(tally: TokenPredictionStats, logits: torch.Tensor, targets: torch.Tensor) -> None:
    """Add the cross-entropy and accuracy of these logits to a tally; ignored targets do not count."""
    counted = targets != IGNORE_INDEX
    logits = logits[counted].float()
    labels = targets[counted]
    tally.nats += float(functional.cross_entropy(logits, labels, reduction="sum").double())
    tally.correct += int((logits.argmax(dim=-1) == labels).sum())
    tally.tokens += len(labels)


@torch.inference_mode()
def masked_token_loss(
    loaded: "LoadedModel", pieces: Iterable[tuple[Sample, bool]], context: int, on_progress: OnProgress
) -> TokenPredictionStats:
    """Return the cross-entropy of masked tokens; the same tokens are masked every time."""
    model, tokenizer, tally = loaded.model, loaded.require_tokenizer(), TokenPredictionStats()
    for number, (windows, characters, _) in enumerate(_window_batches(tokenizer, pieces, context, 16)):
        batch = {"ids": torch.from_numpy(windows.inputs), "padding_mask": torch.from_numpy(windows.padding_mask)}
        masked = MaskedToken().prepare(batch, model.config, seeded_generator(0, 0, number))
        hidden = model.hidden(masked["ids"].to(model.device), padding_mask=masked["padding_mask"].to(model.device))
        predicted = masked["targets"] != IGNORE_INDEX
        add_logits(
            tally, model.logits(hidden[predicted.to(model.device)]), masked["targets"][predicted].to(model.device)
        )
        on_progress(characters)
    if not tally.tokens:
        raise InvalidInput("The text has no token that could be masked.", hint="Give more text.")
    return tally


def ending_accuracy(
    loaded: "LoadedModel", probes: Iterable[Probe], context: int | None, on_progress: OnProgress
) -> AccuracyCounter:
    """Accuracy of endings: the right one is likelier than the wrong one or, without a wrong one, decoded greedily."""
    accuracy = AccuracyCounter()
    for chunk in _chunks(probes, 16):
        rights = _score_texts(loaded, [probe.text for probe in chunk], context)
        wrongs = _score_texts(loaded, [probe.prompt + (probe.wrong or probe.right) for probe in chunk], context)
        for probe, right, wrong in zip(chunk, rights, wrongs, strict=True):
            correct = (
                right.logprob > wrong.logprob
                if probe.wrong
                else right.is_greedy_from(_count_tokens(loaded, probe.prompt))
            )
            accuracy.add(probe.category, correct)
        on_progress(len(chunk))
    return accuracy


class _TextScore:
    """Log-probability of a text, and which of its tokens greedy decoding would choose."""

    def __init__(self, logprobs: torch.Tensor, is_greedy: torch.Tensor, first: int) -> None:
        self.logprob = float(logprobs.double().sum())
        self.is_greedy, self.first = is_greedy.tolist(), first

    def is_greedy_from(self, start: int) -> bool:
        """Return whether greedy decoding would choose every token from position `start` on."""
        return all(self.is_greedy[start - self.first :])


def _count_tokens(loaded: "LoadedModel", text: str) -> int:
    return len(loaded.require_tokenizer().encode_batch_ids([text], add_special_tokens=False)[0])


@torch.inference_mode()
def _score_texts(loaded: "LoadedModel", texts: Sequence[str], context: int | None) -> list[_TextScore]:
    """Score texts, each after a bos token if the model has one; a shared beginning counts for both alike."""
    model, tokenizer = loaded.model, loaded.require_tokenizer()
    bos = model.config.special_tokens.bos
    rows = [
        [*([] if bos is None else [bos]), *ids] for ids in tokenizer.encode_batch_ids(texts, add_special_tokens=False)
    ]
    longest = max(map(len, rows))
    if context is not None and longest > context + 1:
        raise InvalidInput(
            f"A text has {longest:,} tokens, and the context of {loaded.name} is {context:,}.",
            hint="Train it with a longer context.",
        )
    ids, padding_mask = (tensor.to(model.device) for tensor in pad_sequences(rows))
    logprobs = functional.log_softmax(model(ids[:, :-1], padding_mask=padding_mask[:, :-1]).float(), dim=-1)
    token_logprobs = logprobs.gather(2, ids[:, 1:, None])[..., 0]
    chosen = logprobs.argmax(dim=-1) == ids[:, 1:]
    first = int(bos is None)  # without bos the first token is not predicted
    return [
        _TextScore(token_logprobs[i, : len(row) - 1], chosen[i, : len(row) - 1], first) for i, row in enumerate(rows)
    ]


def translation_scores(
    loaded: "LoadedModel", pairs: Iterable[Sample], on_progress: OnProgress
) -> tuple[TokenPredictionStats, TranslationMetrics, AccuracyCounter, list[tuple[str, str, str]]]:
    """Translate each source greedily and compare with its target; also return the first wrong translations."""
    tally, scores, exact = TokenPredictionStats(), TranslationMetrics(), AccuracyCounter()
    wrong: list[tuple[str, str, str]] = []
    for pool in _chunks((pair for pair in pairs if isinstance(pair, TextPair)), _SORT_POOL):
        for chunk in _chunks(sorted(pool, key=lambda pair: len(pair.source)), _BATCH_SIZE):
            _add_reference_loss(tally, loaded, chunk)
            translations = translate_greedy(loaded, [pair.source for pair in chunk])
            scores.add(translations, [pair.target for pair in chunk])
            for pair, text in zip(chunk, translations, strict=True):
                exact.add(pair.category, text.strip() == pair.target.strip())
                if text.strip() != pair.target.strip() and len(wrong) < 5:
                    wrong.append((pair.source, pair.target, text))
            on_progress(len(chunk))
    return tally, scores, exact, wrong


def translate_greedy(loaded: "LoadedModel", sources: Sequence[str]) -> list[str]:
    """Greedy decoding until eos, at most three times the source length plus 16 tokens."""
    context = getattr(loaded.model.config, "max_seq_len", None)
    rows = [ids[:context] for ids in loaded.require_tokenizer().encode_batch_ids(sources)]
    max_tokens = 3 * max(map(len, rows)) + 16
    max_tokens = max_tokens if context is None else min(max_tokens, context - 1)
    target_tokenizer = loaded.target_tokenizer or loaded.require_tokenizer()
    return [
        target_tokenizer.decode(ids)
        for ids in generate(loaded.model, source=rows, sampling=SamplingParams(max_tokens=max_tokens))
    ]


@torch.inference_mode()
def _add_reference_loss(tally: TokenPredictionStats, loaded: "LoadedModel", pairs: Sequence[TextPair]) -> None:
    """Add the teacher-forced cross-entropy of the reference translations to a tally."""
    model, special = loaded.model, loaded.model.config.special_tokens
    target_tokenizer, context = (
        loaded.target_tokenizer or loaded.require_tokenizer(),
        getattr(model.config, "max_seq_len", None),
    )
    source, source_mask = pad_sequences(
        [i[:context] for i in loaded.require_tokenizer().encode_batch_ids([p.source for p in pairs])]
    )
    decoder_start, eos = [] if special.decoder_start is None else [special.decoder_start], special.eos[:1]
    rows = [
        [*decoder_start, *ids, *eos]
        for ids in target_tokenizer.encode_batch_ids([pair.target for pair in pairs], add_special_tokens=False)
    ]
    ids, padding_mask = pad_sequences([row[: None if context is None else context + 1] for row in rows])
    targets = ids[:, 1:].masked_fill(~padding_mask[:, 1:], IGNORE_INDEX)
    encoder_inputs = {"source": source.to(model.device), "source_padding_mask": source_mask.to(model.device)}
    logits = model(ids[:, :-1].to(model.device), padding_mask=padding_mask[:, :-1].to(model.device), **encoder_inputs)
    add_logits(tally, logits, targets.to(model.device))
    tally.bytes += sum(len(pair.target.encode()) for pair in pairs)


def sts_correlation(
    loaded: "LoadedModel", rows: Iterable[tuple[str, str, float]], on_progress: OnProgress
) -> tuple[float, int]:
    """Return Spearman's correlation of cosine similarities with human scores, and the number of pairs."""
    cosines: list[float] = []
    human_scores: list[float] = []
    for chunk in _chunks(rows, _BATCH_SIZE):
        left, right = (_unit(loaded.embed([row[side] for row in chunk])) for side in (0, 1))
        cosines += (left * right).sum(axis=1).tolist()
        human_scores += [row[2] for row in chunk]
        on_progress(len(chunk))
    return spearman(cosines, human_scores), len(human_scores)


def retrieval_accuracy(
    loaded: "LoadedModel", samples: Iterable[Sample], on_progress: OnProgress, among: int = 256
) -> AccuracyCounter:
    """Accuracy of nearest-neighbour retrieval: the nearest of `among` texts is the partner, or has the same label."""
    accuracy = AccuracyCounter()
    for chunk in _chunks(samples, among):
        if isinstance(chunk[0], TextPair):
            nearest = _nearest(loaded, [p.source for p in chunk], [p.target for p in chunk])
            for i, (pair, match) in enumerate(zip(chunk, nearest, strict=True)):
                accuracy.add(pair.category, match == i)
        elif len(chunk) > 1:
            nearest = _nearest(loaded, [s.text for s in chunk])
            for sample, match in zip(chunk, nearest, strict=True):
                accuracy.add(sample.label, chunk[match].label == sample.label)
        on_progress(len(chunk))
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
