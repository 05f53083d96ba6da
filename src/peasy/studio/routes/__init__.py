"""WEB DOOR, what can be asked: one file for each family of requests, and one list of them.

May import: fastapi, studio, workbench and every room below. Imported by: studio.
In: a checked request. Out: a response; every error is a PeasyError, which `reply` puts into words.
"""

from importlib import import_module

from fastapi import APIRouter

FAMILIES = (
    "completions", "embeddings", "paper", "model", "looking", "learning", "state", "work", "generate", "translation",
    "meaning",
)  # fmt: skip
"""Files beside this one, each with a `router`; a page that needs more brings a file and a word here."""

STUDIO = ("training", "experiment", "models")
"""What only the studio may: it starts processes and writes into the user's own folder."""


def routers(studio: bool = False) -> list[APIRouter]:
    """The routers of all families."""
    return [import_module(f"peasy.studio.routes.{name}").router for name in FAMILIES + (STUDIO if studio else ())]
