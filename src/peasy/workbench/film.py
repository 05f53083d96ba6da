"""Attention over training: maps of a fixed probe sentence at every checkpoint of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peasy.checkpoint.resolve import resolve
from peasy.errors import NotFound
from peasy.looking.label import Tokens
from peasy.looking.record import Frame, TrainingFilm
from peasy.looking.words import tokens_of_ids
from peasy.nn.place import Place
from peasy.views.document import Document
from peasy.views.film import film_document
from peasy.workbench.finding import Finding
from peasy.workbench.result import Result


def film(run: str | Path) -> Finding:
    """Return the attention of a run's probe sentence at every checkpoint, first to last."""
    from peasy.training.attention import read_records

    folder = _run_folder(run)
    records = read_records(folder)
    if not records:
        raise NotFound(
            f"{run} has recorded no attention.",
            hint="Attention is recorded at every checkpoint, only for models that have attention.",
        )
    sentence = records[-1].sentence
    tokens = _tokens(sentence.ids, sentence.pieces)
    source = _tokens(sentence.source, sentence.source_pieces) if sentence.source else None
    frames = tuple(
        Frame(record.step, {_place(name): weights.numpy() for name, weights in record.weights.items()})
        for record in records
        if record.sentence == sentence
    )
    target = None if source is None else tokens
    history = TrainingFilm(folder.name, tokens if source is None else source, target, frames)
    return Finding(history, lambda: film_document(history))


@dataclass(frozen=True, repr=False, eq=False)
class Scene(Result):
    """Weights of one attention module at every checkpoint; `places` lists all recorded modules."""

    film: TrainingFilm
    places: tuple[str, ...]
    place: str

    def document(self) -> Document:
        """Heads from top to bottom, checkpoints from left to right."""
        return film_document(self.film, _place(self.place))

    def data(self) -> dict[str, Any]:
        """Run, text, steps and recorded modules; the weights themselves are in the document."""
        weights = self.film.frames[-1].weights[_place(self.place)]
        steps = [frame.step for frame in self.film.frames]
        modules = {"places": list(self.places), "place": self.place, "heads": len(weights), "caveat": self.film.caveat}
        return {"run": self.film.run, "text": self.film.tokens.text, "steps": steps, **modules}

    def __repr__(self) -> str:
        return f"Scene({self.film.run}: {self.place})"


def scene(run: str | Path, place: str | None = None) -> Scene:
    """Return one attention module of a run's probe sentence at every checkpoint; by default that of the last layer."""
    history: TrainingFilm = film(run).record
    modules = tuple(f"{path.stack}.{path.layer}.{path.part}" for path in history.frames[-1].weights)
    if place is not None and place not in modules:
        raise NotFound(f'There is no attention "{place}".', hint=f"Choose one of {', '.join(modules)}.")
    return Scene(history, modules, place or modules[-1])


def _run_folder(run: str | Path) -> Path:
    if (Path(run) / "attention").is_dir():
        return Path(run)
    checkpoint = resolve(run, offline=True).folder
    for folder in (checkpoint, *checkpoint.parents[:2]):
        if (folder / "attention").is_dir():
            return folder
    return checkpoint


def _tokens(ids: tuple[int, ...], pieces: tuple[str, ...]) -> Tokens:
    return tokens_of_ids(ids, pieces, "".join(pieces).replace("·", " ").strip())


def _place(name: str) -> Place:
    stack, layer, part = name.split(".")
    return Place(stack, int(layer), part)
