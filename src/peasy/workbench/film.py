"""Attention over training: the sentence that a run has watched, at every checkpoint."""

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
    """The attention of a run's watched sentence at every checkpoint, first to last."""
    from peasy.training.attention import read_records

    folder = _run_folder(run)
    records = read_records(folder)
    if not records:
        raise NotFound(
            f"{run} has recorded no attention.",
            hint="Only models with attention are watched while they train, at every checkpoint.",
        )
    sentence = records[-1].sentence
    own = _tokens(sentence.ids, sentence.pieces)
    source = _tokens(sentence.source, sentence.source_pieces) if sentence.source else None
    frames = tuple(
        Frame(each.step, {_place(name): weights.numpy() for name, weights in each.weights.items()})
        for each in records
        if each.sentence == sentence
    )
    found = TrainingFilm(folder.name, own if source is None else source, None if source is None else own, frames)
    return Finding(found, lambda: film_document(found))


@dataclass(frozen=True, repr=False, eq=False)
class Scene(Result):
    """One attention of a film: its sentence at every checkpoint. `places` are all that were kept."""

    film: TrainingFilm
    places: tuple[str, ...]
    place: str

    def document(self) -> Document:
        """Heads from top to bottom, checkpoints from left to right."""
        return film_document(self.film, _place(self.place))

    def data(self) -> dict[str, Any]:
        """What can be chosen; the weights themselves are in the drawing."""
        weights = self.film.frames[-1].weights[_place(self.place)]
        steps = [frame.step for frame in self.film.frames]
        told = {"places": list(self.places), "place": self.place, "heads": len(weights), "caveat": self.film.caveat}
        return {"run": self.film.run, "text": self.film.tokens.text, "steps": steps, **told}

    def __repr__(self) -> str:
        return f"Scene({self.film.run}: {self.place})"


def scene(run: str | Path, place: str | None = None) -> Scene:
    """One attention of a run's watched sentence at every checkpoint; the last layer's unless `place` names another."""
    found = film(run).record
    places = tuple(f"{each.stack}.{each.layer}.{each.part}" for each in found.frames[-1].weights)
    if place is not None and place not in places:
        raise NotFound(f'There is no attention "{place}".', hint=f"There is {', '.join(places)}.")
    return Scene(found, places, place or places[-1])


def _run_folder(run: str | Path) -> Path:
    if (Path(run) / "attention").is_dir():
        return Path(run)
    found = resolve(run, offline=True).folder
    for folder in (found, *found.parents[:2]):
        if (folder / "attention").is_dir():
            return folder
    return found


def _tokens(ids: tuple[int, ...], pieces: tuple[str, ...]) -> Tokens:
    return tokens_of_ids(ids, pieces, "".join(pieces).replace("·", " ").strip())


def _place(name: str) -> Place:
    stack, layer, part = name.split(".")
    return Place(stack, int(layer), part)
