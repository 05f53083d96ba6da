"""WEB DOOR, what can be asked: one file for each family of requests, and one list of them.

May import: fastapi, studio, workbench and every room below. Imported by: studio.
In: a checked request. Out: a response; every error is a PeasyError, which `reply` puts into words.
"""

from importlib import import_module

from fastapi import APIRouter

FAMILIES = ("paper", "model", "looking", "learning", "work")
"""Files beside this one, each with a `router`; a page that needs more brings a file and a word here."""


def routers() -> list[APIRouter]:
    """The routers of all families."""
    return [import_module(f"peasy.studio.routes.{name}").router for name in FAMILIES]
