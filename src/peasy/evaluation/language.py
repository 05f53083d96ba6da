"""Evaluation of predicted tokens: loss of texts, masked tokens and translations, choice of endings, BLEU and chrF."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from peasy.checkpoint.loaded_model import ModelBundle
from peasy.datasets import Probe, Sample, TextPair, sample_texts
from peasy.datasets.shards import piece_batches
from peasy.errors import InvalidInput
from peasy.generation.decode import generate
from peasy.generation.sampling_params import SamplingParams
from peasy.metrics.scores import AccuracyCounter, TokenPredictionStats, TranslationMetrics
from peasy.models.encoder import pad_sequences
from peasy.tokenization import Tokenizer
from peasy.training.learner import seeded_generator
from peasy.training.objective import IGNORE_INDEX, MaskedToken

OnProgress = Callable[[int], object]
"""Progress callback: number of characters, or samples, just processed."""
Pieces = Iterable[tuple[Sample, bool]]
"""Texts, each with whether a document ends after it (see `Corpus.pieces`)."""
T = TypeVar("T")

_MAX_LOGITS = 1 << 24
_SORT_POOL, _BATCH_SIZE = 512, 64


class _WindowBatch(NamedTuple):
    """Token windows with next-token targets (padding: IGNORE_INDEX), and how much text was read for them."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    num_chars: int
    num_bytes: int

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return inputs, padding mask (True where there is a target) and targets."""
        inputs, targets = torch.from_numpy(self.inputs).to(device), torch.from_numpy(self.targets).to(device)
        return inputs, targets != IGNORE_INDEX, targets


def text_loss(
    bundle: ModelBundle, pieces: Pieces, context: int, on_progress: OnProgress = bool
) -> tuple[TokenPredictionStats, int]:
    """Return the cross-entropy of all tokens, in non-overlapping windows, and the unknown-token count.

    If the tokenizer begins texts with a special token, each text is scored separately after it, as the model reads a
    prompt; otherwise texts follow each other and the very first token is not predicted.
    """
    model, tokenizer, stats, num_unknown = bundle.model, bundle.require_tokenizer(), TokenPredictionStats(), 0
    (begin, _), unk = tokenizer.added_ids, tokenizer.special_tokens.unk
    batch_size = max(1, min(_BATCH_SIZE, _MAX_LOGITS // (context * model.config.vocab_size)))
    batches = _window_batches(tokenizer, pieces, context, batch_size)
    if begin:
        batches = _text_batches(tokenizer, pieces, begin, context, batch_size)
    for index, batch in enumerate(batches):
        stats.bytes += batch.num_bytes
        if not begin and index == 0:  # the first token is not predicted
            stats.bytes -= len(tokenizer.decode([batch.inputs[0, 0]]).encode())
        num_unknown += 0 if unk is None else int((batch.targets == unk).sum())
        inputs, padding_mask, targets = batch.tensors(model.device)
        with torch.inference_mode():
            _add_logits(stats, model(inputs, padding_mask=None if padding_mask.all() else padding_mask), targets)
        on_progress(batch.num_chars)
    if not stats.tokens:
        raise InvalidInput("The text has fewer than two tokens.", hint="Give more text.")
    return stats, num_unknown


@torch.inference_mode()
def masked_token_loss(
    bundle: ModelBundle, pieces: Pieces, context: int, on_progress: OnProgress = bool
) -> TokenPredictionStats:
    """Return the cross-entropy of masked tokens; the same tokens are masked every time.

    Each window has the special tokens around it that the tokenizer adds to a text; they are not masked.
    """
    model, tokenizer, stats = bundle.model, bundle.require_tokenizer(), TokenPredictionStats()
    before, after = tokenizer.added_ids
    text_length = max(context - len(before) - len(after), 1)
    for index, batch in enumerate(_window_batches(tokenizer, pieces, text_length, 16)):
        inputs, is_text, _ = batch.tensors(torch.device("cpu"))
        rows = [row[mask].tolist() for row, mask in zip(inputs, is_text, strict=True)]
        inputs, padding_mask = pad_sequences([[*before, *row, *after] for row in rows])
        positions, lengths = torch.arange(inputs.shape[1]), torch.tensor([[len(row)] for row in rows])
        is_text = (positions >= len(before)) & (positions < len(before) + lengths)
        batch_of_texts = {"ids": inputs, "padding_mask": is_text}
        masked = MaskedToken().prepare(batch_of_texts, model.config, seeded_generator(0, 0, index))
        hidden = model.hidden(masked["ids"].to(model.device), padding_mask=padding_mask.to(model.device))
        targets = masked["targets"].to(model.device)
        predicted = targets != IGNORE_INDEX
        _add_logits(stats, model.logits(hidden[predicted]), targets[predicted])
        on_progress(batch.num_chars)
    if not stats.tokens:
        raise InvalidInput("The text has no token that could be masked.", hint="Give more text.")
    return stats


def _add_logits(stats: TokenPredictionStats, logits: torch.Tensor, targets: torch.Tensor) -> None:
    """Add the cross-entropy and accuracy of these logits; ignored targets do not count."""
    counted = targets != IGNORE_INDEX
    logits, labels = logits[counted].float(), targets[counted]
    stats.nats += float(functional.cross_entropy(logits, labels, reduction="sum").double())
    stats.correct += int((logits.argmax(dim=-1) == labels).sum())
    stats.tokens += len(labels)


def _windows(ids: NDArray[np.int64], context: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of `context` input tokens and their next-token targets; the last row is padded."""
    count = len(ids) - 1
    rows = -(-count // context)
    inputs, targets = np.zeros(rows * context, np.int64), np.full(rows * context, IGNORE_INDEX, np.int64)
    inputs[:count], targets[:count] = ids[:-1], ids[1:]
    return inputs.reshape(rows, context), targets.reshape(rows, context)


def _text_batches(
    tokenizer: Tokenizer, pieces: Pieces, begin: Sequence[int], context: int, batch_size: int
) -> Iterator[_WindowBatch]:
    """Yield batches of windows of whole texts, each text after `begin`; no row crosses a text boundary."""
    for rows in chunks(_text_rows(tokenizer, pieces, begin, context), batch_size):
        inputs, targets = (np.concatenate([getattr(row, side) for row in rows]) for side in ("inputs", "targets"))
        width = int((targets != IGNORE_INDEX).sum(axis=1).max())  # no longer than the longest
        sizes = sum(row.num_chars for row in rows), sum(row.num_bytes for row in rows)
        yield _WindowBatch(inputs[:, :width], targets[:, :width], *sizes)


def _text_rows(tokenizer: Tokenizer, pieces: Pieces, begin: Sequence[int], context: int) -> Iterator[_WindowBatch]:
    """Yield single windows; a piece that continues a text follows its last token. The first counts all characters."""
    before, num_special = list(begin), len(begin)
    for chunk in chunks(pieces, _BATCH_SIZE):
        for (sample, ends), ids in zip(chunk, _encode_with_eos(tokenizer, chunk), strict=True):
            inputs, targets = _windows(np.concatenate([np.array(before, np.int64), ids]), context)
            targets[:1, : num_special - 1] = IGNORE_INDEX  # special tokens are not predicted
            sizes = _text_size([(sample, ends)])
            for row in range(len(inputs)):
                yield _WindowBatch(inputs[row : row + 1], targets[row : row + 1], *((0, 0) if row else sizes))
            before, num_special = (list(begin), len(begin)) if ends or not len(ids) else ([int(ids[-1])], 1)


def _window_batches(tokenizer: Tokenizer, pieces: Pieces, context: int, batch_size: int) -> Iterator[_WindowBatch]:
    pending, num_chars, num_bytes = np.empty(0, np.int64), 0, 0
    batch_tokens = batch_size * context
    for chunk in piece_batches(pieces):
        pending = np.concatenate([pending, *_encode_with_eos(tokenizer, chunk)])
        chunk_chars, chunk_bytes = _text_size(chunk)
        num_chars, num_bytes = num_chars + chunk_chars, num_bytes + chunk_bytes
        while len(pending) > batch_tokens:
            yield _WindowBatch(*_windows(pending[: batch_tokens + 1], context), num_chars, num_bytes)
            pending, num_chars, num_bytes = pending[batch_tokens:], 0, 0
    if len(pending) > 1:
        yield _WindowBatch(*_windows(pending, context), num_chars, num_bytes)


def _encode_with_eos(tokenizer: Tokenizer, chunk: Sequence[tuple[Sample, bool]]) -> Iterator[NDArray[np.int64]]:
    eos, texts = tokenizer.special_tokens.eos, [sample_texts(sample)[0] for sample, _ in chunk]
    rows = tokenizer.encode_batch_ids(texts, add_special_tokens=False)
    for ids, (_, ends) in zip(rows, chunk, strict=True):
        yield np.array([*ids, eos] if ends and eos is not None else ids, dtype=np.int64)


def _text_size(chunk: Sequence[tuple[Sample, bool]]) -> tuple[int, int]:
    texts = [sample_texts(sample)[0] for sample, _ in chunk]
    return sum(map(len, texts)), sum(len(text.encode()) for text in texts)


def ending_accuracy(
    bundle: ModelBundle, probes: Iterable[Probe], context: int | None = None, on_progress: OnProgress = bool
) -> AccuracyCounter:
    """Accuracy of endings: the right one is likelier than the wrong one or, without a wrong one, decoded greedily."""
    accuracy, tokenizer = AccuracyCounter(), bundle.require_tokenizer()
    for chunk in chunks(probes, 16):
        right = score_texts(bundle, [probe.text for probe in chunk], context)
        wrong = score_texts(bundle, [probe.prompt + (probe.wrong or probe.right) for probe in chunk], context)
        prompts = tokenizer.encode_batch_ids([probe.prompt for probe in chunk], add_special_tokens=False)
        for index, probe in enumerate(chunk):
            logprob, is_greedy = right[index]
            correct = logprob > wrong[index][0] if probe.wrong else all(is_greedy[len(prompts[index]) :])
            accuracy.add(probe.category, correct)
        on_progress(len(chunk))
    return accuracy


@torch.inference_mode()
def score_texts(
    bundle: ModelBundle, texts: Sequence[str], context: int | None = None
) -> list[tuple[float, list[bool]]]:
    """Return the log-probability of each text, and for each of its tokens whether greedy decoding would choose it.

    Each text follows the special tokens that the tokenizer begins it with; without any, the first token is not
    predicted.
    """
    model, tokenizer = bundle.model, bundle.require_tokenizer()
    begin = list(tokenizer.added_ids[0])
    rows = [begin + ids for ids in tokenizer.encode_batch_ids(texts, add_special_tokens=False)]
    longest = max(map(len, rows))
    if context is not None and longest > context + 1:
        message = f"A text has {longest:,} tokens, and the context of {bundle.name} is {context:,}."
        raise InvalidInput(message, hint="Train it with a longer context.")
    ids, padding_mask = (tensor.to(model.device) for tensor in pad_sequences(rows))
    logprobs = functional.log_softmax(model(ids[:, :-1], padding_mask=padding_mask[:, :-1]).float(), dim=-1)
    chosen = logprobs.gather(2, ids[:, 1:, None])[..., 0].double()
    is_greedy = (logprobs.argmax(dim=-1) == ids[:, 1:]).tolist()
    start, unpredicted = max(len(begin) - 1, 0), [] if begin else [True]
    return [
        (float(chosen[i, start : len(row) - 1].sum()), unpredicted + is_greedy[i][start : len(row) - 1])
        for i, row in enumerate(rows)
    ]


@dataclass
class TranslationScores:
    """Greedy translations compared with their references; `wrong` are the first (source, reference, output)."""

    stats: TokenPredictionStats = field(default_factory=TokenPredictionStats)
    metrics: TranslationMetrics = field(default_factory=TranslationMetrics)
    exact: AccuracyCounter = field(default_factory=AccuracyCounter)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)


def translation_scores(
    bundle: ModelBundle, samples: Iterable[Sample], on_progress: OnProgress = bool
) -> TranslationScores:
    """Translate each source greedily and compare with its target."""
    scores = TranslationScores()
    for pool in chunks((sample for sample in samples if isinstance(sample, TextPair)), _SORT_POOL):
        for pairs in chunks(sorted(pool, key=lambda pair: len(pair.source)), _BATCH_SIZE):
            _add_reference_loss(scores.stats, bundle, pairs)
            translations = translate_greedy(bundle, [pair.source for pair in pairs])
            scores.metrics.add(translations, [pair.target for pair in pairs])
            for pair, text in zip(pairs, translations, strict=True):
                is_exact = text.strip() == pair.target.strip()
                scores.exact.add(pair.category, is_exact)
                if not is_exact and len(scores.wrong) < 5:
                    scores.wrong.append((pair.source, pair.target, text))
            on_progress(len(pairs))
    return scores


def translate_greedy(bundle: ModelBundle, sources: Sequence[str]) -> list[str]:
    """Greedy decoding until eos, at most three times the source length plus 16 tokens."""
    rows = [bundle.truncate_ids(ids) for ids in bundle.require_tokenizer().encode_batch_ids(sources)]
    sampling = SamplingParams(max_tokens=bundle.max_translation_tokens(max(map(len, rows))))
    outputs = generate(bundle.model, source=rows, sampling=sampling)
    return [bundle.output_tokenizer().decode(ids) for ids in outputs]


@torch.inference_mode()
def _add_reference_loss(stats: TokenPredictionStats, bundle: ModelBundle, pairs: Sequence[TextPair]) -> None:
    """Add the teacher-forced cross-entropy of the reference translations."""
    model, special, context = bundle.model, bundle.model.config.special_tokens, bundle.max_seq_len
    sources = bundle.require_tokenizer().encode_batch_ids([pair.source for pair in pairs])
    begin, end = [] if special.decoder_start is None else [special.decoder_start], list(special.eos[:1])
    references = [pair.target for pair in pairs]
    rows = bundle.output_tokenizer().encode_batch_ids(references, add_special_tokens=False)
    longest = None if context is None else context + 1
    source, source_mask = pad_sequences([bundle.truncate_ids(ids) for ids in sources])
    target, target_mask = pad_sequences([[*begin, *ids, *end][:longest] for ids in rows])
    labels = target[:, 1:].masked_fill(~target_mask[:, 1:], IGNORE_INDEX)
    arrays = target[:, :-1], target_mask[:, :-1], source, source_mask, labels
    ids, padding_mask, source, source_mask, labels = (array.to(model.device) for array in arrays)
    logits = model(ids, padding_mask=padding_mask, source=source, source_padding_mask=source_mask)
    _add_logits(stats, logits, labels)
    stats.bytes += sum(len(text.encode()) for text in references)


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of `size` items; the last one may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
