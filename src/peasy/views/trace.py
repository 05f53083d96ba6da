"""Generation trace as a document: candidates, attention and KV cache use of each decoding step."""

from collections.abc import Iterator

import numpy as np

from peasy.inspection.results import GenerationTrace, TraceStep
from peasy.nn.module_path import ModulePath
from peasy.views.attention import attention_name, opening_notes, short_title
from peasy.views.document import (
    Arithmetic,
    CacheFigure,
    Document,
    DocumentPart,
    Heading,
    Maps,
    Matrix,
    Paragraph,
    Table,
)

MAX_CANDIDATES = 6


def trace_document(trace: GenerationTrace) -> Document:
    """Document with the candidates of every step, attention maps, KV cache use, and beams if there are several."""
    parts: list[DocumentPart] = [Paragraph(trace.text), *opening_notes(trace.interventions)]
    if trace.steps:
        parts += [candidates_matrix(trace.steps), *topk_attention_maps(trace), kv_cache_figure(trace)]
    if len(trace.beams) > 1:
        parts += [Heading("Beams"), _beams(trace)]
    parts.append(Paragraph(trace.caveat[:1].upper() + trace.caveat[1:], "note"))
    return Document(short_title(trace.prompt.text or trace.text, trace.model), tuple(parts))


def candidates_matrix(steps: tuple[TraceStep, ...]) -> Matrix:
    """Matrix of candidates for each generated token, shaded by probability; the sampled one is marked."""
    width = min(max(len(step.candidates) for step in steps), MAX_CANDIDATES)
    shown = [step.candidates[:width] for step in steps]
    blank = ("",) * width
    values = tuple((*(f"{token.piece} {token.probability:.2f}" for token in row), *blank)[:width] for row in shown)
    shades = tuple((*(token.probability for token in row), *(None,) * width)[:width] for row in shown)
    marks = {
        (row, column)
        for row, (step, candidates) in enumerate(zip(steps, shown, strict=True))
        for column, token in enumerate(candidates)
        if token.id == step.id
    }

    def explain(row: int, column: int) -> Arithmetic:
        token = steps[row].candidates[column]
        line = f"probability {token.probability:.4f}, log {np.log(max(token.probability, 1e-45)):.4f}"
        return Arithmetic(f"step {row + 1}: {token.piece}", (line,))

    return Matrix(
        "candidates", values, tuple(step.piece for step in steps), tuple(f"{rank + 1}." for rank in range(width)),
        "generated", "candidate", description="Candidates by probability; the chosen token is marked.",
        shaded=True, marks=frozenset(marks), explain=explain, shades=shades,
    )  # fmt: skip


def topk_attention_maps(trace: GenerationTrace) -> Iterator[Maps]:
    """Attention maps of the generated tokens, with the recorded top-k weights of each row."""
    kinds: dict[str, list[ModulePath]] = {}
    for topk in trace.steps[0].attention:
        kinds.setdefault(attention_name(topk.path), []).append(topk.path)
    for name, paths in kinds.items():
        cross = "cross-attention" in name
        keys = trace.source.pieces if cross and trace.source is not None else trace.keys
        heads = trace.steps[0].attention[0].keys.shape[0]
        values = np.zeros((len(paths), heads, len(trace.steps), len(keys)), dtype=np.float32)
        for row, step in enumerate(trace.steps):
            if not cross:
                values[:, :, row, step.num_cached + step.num_computed :] = np.nan
            for topk in step.attention:
                if topk.path in paths:
                    down = paths.index(topk.path)
                    values[down, np.arange(heads)[:, None], row, topk.keys] = topk.weights
        yield Maps(
            name, values, tuple(step.piece for step in trace.steps), keys,
            tuple(str(path.layer) for path in paths), tuple(map(str, range(heads))), row_axis="generated",
            description="Only the largest weights of each row were recorded; the others are drawn as 0.",
        )  # fmt: skip


def kv_cache_figure(trace: GenerationTrace) -> CacheFigure:
    """KV cache figure: computed and cached tokens per step."""
    computed = sum(step.num_computed for step in trace.steps)
    total = computed + sum(step.num_cached for step in trace.steps)
    description = f"{computed:,} tokens went through the model; without the cache, it would have been {total:,}."
    steps = tuple((step.num_cached, step.num_computed) for step in trace.steps)
    return CacheFigure("KV cache, step by step", trace.keys, steps, description)


def _beams(trace: GenerationTrace) -> Table:
    rows = tuple((str(rank + 1), beam.text, beam.steps[-1].cumulative_logprob if beam.steps else None)
                 for rank, beam in enumerate(trace.beams))  # fmt: skip
    return Table(("beam", "text", "log-probability"), rows)
