"""What a model wrote, ready to be shown: the text, the chances of each token, and what the cache saved."""

from dataclasses import dataclass

from peasy.views.document import Cache, Cell, Document, Heading, Paragraph, Part, Table


@dataclass(frozen=True)
class Piece:
    """One token that was written: as a person can read it, its chance, and the likeliest tokens at its place."""

    id: int
    piece: str
    chance: float | None = None
    candidates: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Writing:
    """What was written after one prompt, and why it ended; `error` says why there is nothing."""

    prompt: str
    text: str
    reason: str
    seed: int = 0
    pieces: tuple[Piece, ...] = ()
    unknown: int = 0
    error: str | None = None


@dataclass(frozen=True)
class CacheStep:
    """One step with and without a cache: tokens reused and computed, multiplications, milliseconds, and how far the
    scores of the two are apart."""

    token: str
    reused: int
    computed: int
    work: int
    work_without: int
    ms: float
    ms_without: float
    apart: float


REASONS = {
    "end": "the model ended the text",
    "stop": "a stop text came",
    "length": "it is as long as it may be",
    "error": "it could not be written",
}


def writings_document(name: str, writings: tuple[Writing, ...], note: str) -> Document:
    """All texts; with more than one, each under its prompt."""
    parts: list[Part] = []
    for place, writing in enumerate(writings):
        if len(writings) > 1:
            parts.append(Heading(_title(writing.prompt) or "(nothing)", place + 1))
        parts += [Paragraph(writing.error, "bad")] if writing.error else [Paragraph(writing.text)]
        if writing.unknown:
            parts.append(Paragraph(unknown_note(writing.unknown), "note"))
        if any(piece.candidates for piece in writing.pieces):
            parts.append(chances_table(writing))
    parts.append(Paragraph(note, "note"))
    return Document(_title(writings[0].prompt) if len(writings) == 1 else f"{name} writes", tuple(parts))


def unknown_note(count: int) -> str:
    """What is said of a prompt with tokens that the model has never seen."""
    return f"{count:,} token{'s' * (count != 1)} of the prompt {'are' if count != 1 else 'is'} unknown to this model."


def chances_table(writing: Writing) -> Table:
    """Each token with its chance, and beside it the likeliest ones at its place."""
    most = max((len(piece.candidates) for piece in writing.pieces), default=0)
    rows: list[tuple[Cell, ...]] = []
    for place, piece in enumerate(writing.pieces):
        others = [f"{name} {chance:.2f}" for name, chance in piece.candidates]
        told = "" if piece.chance is None else f"{piece.chance:.4f}"
        rows.append((str(place + 1), piece.piece, told, *others, *[""] * (most - len(others))))
    columns = ("", "token", "chance", *(["likeliest", *[""] * (most - 1)] if most else []))
    return Table(columns, tuple(rows), "What could have come")


def cache_parts(prompt: tuple[str, ...], steps: tuple[CacheStep, ...]) -> tuple[Part, ...]:
    """What each step computed and what it took from the cache, as a picture and as a table, and what that saved."""
    tokens = (*prompt, *(step.token for step in steps[:-1]))
    picture = Cache("The cache, step by step", tokens, tuple((step.reused, step.computed) for step in steps))
    rows = tuple(_cache_row(place, step) for place, step in enumerate(steps))
    work, without = sum(step.work for step in steps), sum(step.work_without for step in steps)
    ms, ms_without = sum(step.ms for step in steps), sum(step.ms_without for step in steps)
    apart = max(step.apart for step in steps)
    said = f"With the cache {work:,} multiplications and {ms:,.1f} ms; without {without:,} and {ms_without:,.1f} ms"
    times = f" ({without / work:.1f} and {ms_without / ms:.1f} times as much)" if work and ms else ""
    columns = ("step", "writes", "computed", "reused", "multiplications", "without", "ms", "without")
    return (
        Heading("The cache"),
        picture,
        Table(columns, rows),
        Paragraph(f"{said}{times}. The scores differ by at most {apart:.1e}."),
    )


def _cache_row(place: int, step: CacheStep) -> tuple[Cell, ...]:
    counts = (str(place + 1), step.token, str(step.computed), str(step.reused), f"{step.work:,}")
    return (*counts, f"{step.work_without:,}", f"{step.ms:.2f}", f"{step.ms_without:.2f}")


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:57] + "..."
