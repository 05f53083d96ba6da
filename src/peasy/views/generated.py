"""Generation trace as a document: candidates, attention and KV cache use of each decoding step."""

from collections.abc import Iterator

import numpy as np

from peasy.looking.record import GenerationTrace, TraceStep
from peasy.nn.place import Place
from peasy.views.attention import attention_name, opening, short_title
from peasy.views.document import Arithmetic, Cache, Document, Heading, Maps, Matrix, Paragraph, Part, Table

MOST_CANDIDATES = 6


def trace_document(trace: GenerationTrace) -> Document:
    """Document with the candidates of every step, attention maps, KV cache use, and beams if there are several."""
    parts: list[Part] = [Paragraph(trace.text), *opening(trace.edits)]
    if trace.steps:
        parts += [candidates_matrix(trace.steps), *looked_maps(trace), cache_part(trace)]
    if len(trace.beams) > 1:
        parts += [Heading("Beams"), _beams(trace)]
    parts.append(Paragraph(trace.caveat[:1].upper() + trace.caveat[1:], "note"))
    return Document(short_title(trace.prompt.text or trace.text, trace.model), tuple(parts))


def candidates_matrix(steps: tuple[TraceStep, ...]) -> Matrix:
    """Matrix of candidates for each generated token, shaded by probability; the sampled one is marked."""
    width = min(max(len(step.candidates) for step in steps), MOST_CANDIDATES)
    shown = [step.candidates[:width] for step in steps]
    blank = ("",) * width
    values = tuple((*(f"{token.piece} {token.chance:.2f}" for token in row), *blank)[:width] for row in shown)
    shades = tuple((*(token.chance for token in row), *(None,) * width)[:width] for row in shown)
    marks = {
        (row, column)
        for row, (step, candidates) in enumerate(zip(steps, shown, strict=True))
        for column, token in enumerate(candidates)
        if token.id == step.id
    }

    def explain(row: int, column: int) -> Arithmetic:
        token = steps[row].candidates[column]
        line = f"probability {token.chance:.4f}, log {np.log(max(token.chance, 1e-45)):.4f}"
        return Arithmetic(f"step {row + 1}: {token.piece}", (line,))

    return Matrix(
        "candidates", values, tuple(step.piece for step in steps), tuple(f"{rank + 1}." for rank in range(width)),
        "generated", "candidate", says="Candidates by probability; the chosen token is marked.",
        shaded=True, marks=frozenset(marks), explain=explain, shades=shades,
    )  # fmt: skip


def looked_maps(trace: GenerationTrace) -> Iterator[Maps]:
    """Attention maps of the generated tokens, with the recorded top-k weights of each row."""
    kinds: dict[str, list[Place]] = {}
    for topk in trace.steps[0].looked:
        kinds.setdefault(attention_name(topk.place), []).append(topk.place)
    for name, paths in kinds.items():
        cross = "cross-attention" in name
        keys = trace.source.pieces if cross and trace.source is not None else trace.keys
        heads = trace.steps[0].looked[0].keys.shape[0]
        values = np.zeros((len(paths), heads, len(trace.steps), len(keys)), dtype=np.float32)
        for row, step in enumerate(trace.steps):
            if not cross:
                values[:, :, row, step.reused + step.computed :] = np.nan
            for topk in step.looked:
                if topk.place in paths:
                    down = paths.index(topk.place)
                    values[down, np.arange(heads)[:, None], row, topk.keys] = topk.weights
        yield Maps(
            name, values, tuple(step.piece for step in trace.steps), keys,
            tuple(str(path.layer) for path in paths), tuple(map(str, range(heads))), row_axis="generated",
            says="Only the largest weights of each row were recorded; the others are drawn as 0.",
        )  # fmt: skip


def cache_part(trace: GenerationTrace) -> Cache:
    """KV cache figure: computed and cached tokens per step."""
    computed = sum(step.computed for step in trace.steps)
    total = computed + sum(step.reused for step in trace.steps)
    says = f"{computed:,} tokens went through the model; without the cache, it would have been {total:,}."
    steps = tuple((step.reused, step.computed) for step in trace.steps)
    return Cache("KV cache, step by step", trace.keys, steps, says)


def _beams(trace: GenerationTrace) -> Table:
    rows = tuple((str(rank + 1), beam.text, beam.steps[-1].score if beam.steps else None)
                 for rank, beam in enumerate(trace.beams))  # fmt: skip
    return Table(("beam", "text", "log-probability"), rows)
