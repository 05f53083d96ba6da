"""Attention over training: the sentence that a run has watched, at every checkpoint."""

from pathlib import Path

from peasy.checkpoint.resolve import resolve
from peasy.errors import NotFound
from peasy.looking.label import Tokens
from peasy.looking.record import Frame, TrainingFilm
from peasy.looking.words import tokens_of_ids
from peasy.nn.place import Place
from peasy.views.film import film_document
from peasy.workbench.finding import Finding


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
