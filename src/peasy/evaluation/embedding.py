"""Evaluation of embeddings: semantic textual similarity (STS) against human scores, nearest-neighbour retrieval."""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from peasy.checkpoint.loaded_model import ModelBundle
from peasy.datasets import DataProblems, LabelledText, Sample, TextPair
from peasy.datasets.charset import read_lines
from peasy.evaluation.language import OnProgress, chunks
from peasy.metrics.kmeans import unit_vectors
from peasy.metrics.scores import AccuracyCounter, spearman

MAX_CANDIDATES = 256
"""Number of texts among which the nearest one is searched."""

_BATCH_SIZE = 64


def sts_correlation(bundle: ModelBundle, rows: Iterable[tuple[str, str, float]]) -> tuple[float, int]:
    """Return Spearman's correlation of cosine similarities with human scores, and the number of pairs."""
    cosines: list[float] = []
    human_scores: list[float] = []
    for chunk in chunks(rows, _BATCH_SIZE):
        left, right = _embed(bundle, [row[0] for row in chunk]), _embed(bundle, [row[1] for row in chunk])
        cosines += (left * right).sum(axis=1).tolist()
        human_scores += [row[2] for row in chunk]
    return spearman(cosines, human_scores), len(human_scores)


def retrieval_accuracy(
    bundle: ModelBundle, samples: Iterable[Sample], on_progress: OnProgress = bool
) -> AccuracyCounter:
    """Accuracy of nearest-neighbour retrieval: the nearest text is the partner, or has the same label."""
    accuracy = AccuracyCounter()
    for chunk in chunks(samples, MAX_CANDIDATES):
        pairs = [sample for sample in chunk if isinstance(sample, TextPair)]
        texts = [sample for sample in chunk if isinstance(sample, LabelledText)]
        if pairs:
            cosines = _embed(bundle, [p.source for p in pairs]) @ _embed(bundle, [p.target for p in pairs]).T
            for index, nearest in enumerate(cosines.argmax(axis=1).tolist()):
                accuracy.add(pairs[index].category, nearest == index)
        elif len(texts) > 1:
            vectors = _embed(bundle, [sample.text for sample in texts])
            cosines = vectors @ vectors.T
            np.fill_diagonal(cosines, -2.0)  # a text is no neighbour of itself
            for sample, nearest in zip(texts, cosines.argmax(axis=1).tolist(), strict=True):
                accuracy.add(sample.label, texts[nearest].label == sample.label)
        on_progress(len(chunk))
    return accuracy


def _embed(bundle: ModelBundle, texts: Sequence[str]) -> NDArray[np.float64]:
    return unit_vectors(np.asarray(bundle.embed_texts(texts), dtype=np.float64))


def find_sts_file(data: object) -> Path | None:
    """Return the path if this is an STS file, with two sentences and a score in each row, else None."""
    if not isinstance(data, str | Path) or Path(data).suffix.lower() not in (".tsv", ".jsonl"):
        return None
    path = Path(data)
    if not path.is_file():
        return None
    first = next((line for _, line in read_lines(path, DataProblems()) if line), "")
    return path if _parse_sts_row(path, first) is not None or _is_header(first) else None


def read_sts_rows(path: Path, problems: DataProblems, on_bytes_read: OnProgress) -> Iterator[tuple[str, str, float]]:
    """Yield the rows of an STS file: two sentences and a score; `on_bytes_read` is called with the number of bytes."""
    for number, line in read_lines(path, problems):
        on_bytes_read(len((line or "").encode()) + 1)
        if not line or not line.strip():
            continue
        if (row := _parse_sts_row(path, line)) is not None:
            yield row
        elif number > 1 or not _is_header(line):
            problems.add(f"{path}:{number}", "the row is not two sentences and a score")


def _is_header(line: str) -> bool:
    return line.split("\t")[2:3] == ["score"]


def _parse_sts_row(path: Path, line: str) -> tuple[str, str, float] | None:
    try:
        if path.suffix.lower() == ".tsv":
            left, right, score = line.split("\t")
        else:
            row = json.loads(line)
            left, right, score = row["source"], row["target"], row["score"]
        number = float(score)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    valid = isinstance(left, str) and isinstance(right, str) and left.strip() and right.strip()
    return (left, right, number) if valid and math.isfinite(number) else None
