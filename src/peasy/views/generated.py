"""How a text came about, token by token: candidates, what was looked at, what the cache saved."""

from collections.abc import Iterator

import numpy as np

from peasy.looking.record import GenerationTrace, TraceStep
from peasy.nn.place import Place
from peasy.views.attention import attention_name, opening, short_title
from peasy.views.document import Arithmetic, Cache, Document, Heading, Maps, Matrix, Paragraph, Part, Table

MOST_CANDIDATES = 6


def trace_document(trace: GenerationTrace) -> Document:
    """The candidates of every step, where each head looked, the cache, and the beams where there were several."""
    parts: list[Part] = [Paragraph(trace.text), *opening(trace.edits)]
    if trace.steps:
        parts += [candidates_matrix(trace.steps), *looked_maps(trace), cache_part(trace)]
    if len(trace.beams) > 1:
        parts += [Heading("Beams"), _beams(trace)]
    parts.append(Paragraph(trace.caveat[:1].upper() + trace.caveat[1:], "note"))
    return Document(short_title(trace.prompt.text or trace.text, trace.model), tuple(parts))


def candidates_matrix(steps: tuple[TraceStep, ...]) -> Matrix:
    """Each produced token with what else could have come, shaded by probability; the chosen one is marked."""
    width = min(max(len(step.candidates) for step in steps), MOST_CANDIDATES)
    shown = [step.candidates[:width] for step in steps]
    blank = ("",) * width
    values = tuple((*(f"{each.piece} {each.chance:.2f}" for each in row), *blank)[:width] for row in shown)
    shades = tuple((*(each.chance for each in row), *(None,) * width)[:width] for row in shown)
    marks = {
        (row, column)
        for row, (step, best) in enumerate(zip(steps, shown, strict=True))
        for column, each in enumerate(best)
        if each.id == step.id
    }

    def explain(row: int, column: int) -> Arithmetic:
        each = steps[row].candidates[column]
        said = f"probability {each.chance:.4f}, log {np.log(max(each.chance, 1e-45)):.4f}"
        return Arithmetic(f"step {row + 1}: {each.piece}", (said,))

    return Matrix(
        "candidates", values, tuple(step.piece for step in steps), tuple(f"{place + 1}." for place in range(width)),
        "produced", "candidate", says="What could have come, by probability; what was chosen is marked.",
        shaded=True, marks=frozenset(marks), explain=explain, shades=shades,
    )  # fmt: skip


def looked_maps(trace: GenerationTrace) -> Iterator[Maps]:
    """Where each head looked when each token was chosen: of each row the largest weights, as they were kept."""
    kinds: dict[str, list[Place]] = {}
    for looked in trace.steps[0].looked:
        kinds.setdefault(attention_name(looked.place), []).append(looked.place)
    for name, places in kinds.items():
        cross = "into the source" in name
        keys = trace.source.pieces if cross and trace.source is not None else trace.keys
        heads = trace.steps[0].looked[0].keys.shape[0]
        values = np.zeros((len(places), heads, len(trace.steps), len(keys)), dtype=np.float32)
        for row, step in enumerate(trace.steps):
            if not cross:
                values[:, :, row, step.reused + step.computed :] = np.nan
            for looked in step.looked:
                if looked.place in places:
                    down = places.index(looked.place)
                    values[down, np.arange(heads)[:, None], row, looked.keys] = looked.weights
        yield Maps(
            name, values, tuple(step.piece for step in trace.steps), keys,
            tuple(str(place.layer) for place in places), tuple(map(str, range(heads))), row_axis="produced",
            says="The largest weights of each row, as they were kept; the rest of a row is not drawn.",
        )  # fmt: skip


def cache_part(trace: GenerationTrace) -> Cache:
    """What each step computed and what it reused."""
    new, all_ = (sum(each) for each in zip(*((s.computed, s.computed + s.reused) for s in trace.steps), strict=True))
    says = f"{new:,} tokens went through the model; without the cache it would have been {all_:,}."
    steps = tuple((step.reused, step.computed) for step in trace.steps)
    return Cache("The cache, step by step", trace.keys, steps, says)


def _beams(trace: GenerationTrace) -> Table:
    rows = tuple((str(place + 1), each.text, each.steps[-1].score if each.steps else None)
                 for place, each in enumerate(trace.beams))  # fmt: skip
    return Table(("beam", "text", "log probability"), rows)
