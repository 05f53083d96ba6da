"""Attention over training: heat maps of one sentence at every checkpoint of a run."""

import numpy as np

from peasy.looking.record import TrainingFilm
from peasy.nn.place import Place
from peasy.views.attention import attention_name, short_title
from peasy.views.document import Document, Maps, Paragraph, Part


def film_document(film: TrainingFilm, place: Place | None = None) -> Document:
    """Document of heat maps, heads by checkpoints, for one attention layer or for all that were recorded."""
    paths = [place] if place is not None else list(film.frames[0].weights)
    parts: list[Part] = [film_maps(film, layer_path) for layer_path in paths]
    parts.append(Paragraph(film.caveat[:1].upper() + film.caveat[1:], "note"))
    return Document(f"Attention over training: {short_title(film.tokens.text, film.run)}", tuple(parts))


def film_maps(film: TrainingFilm, place: Place) -> Maps:
    """Heat maps of one attention layer: heads by checkpoints."""
    values = np.stack([np.asarray(frame.weights[place], dtype=np.float32) for frame in film.frames], axis=1)
    queries = film.target if film.target is not None and place.stack == "decoder" else film.tokens
    keys = film.tokens if "cross" in place.part else queries
    heads, steps = tuple(map(str, range(len(values)))), tuple(f"{frame.step:,}" for frame in film.frames)
    return Maps(
        f"{attention_name(place)}, layer {place.layer}", values, queries.pieces, keys.pieces, heads, steps,
        down_axis="head", across_axis="after step", chosen=(0, len(steps) - 1),
    )  # fmt: skip
