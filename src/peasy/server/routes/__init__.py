"""HTTP routes, one module per group of endpoints.

May import: fastapi, server, commands and every package below. Imported by: server.
In: a validated request. Out: a response; errors are PeasyErrors, which `responses` maps to HTTP.
"""

from importlib import import_module

from fastapi import APIRouter

_API_MODULES = ("completions", "embeddings", "tokens", "commands", "health", "generate")
"""Modules of this package, each with a `router`."""

_STUDIO_MODULES = ("training",)
"""Modules for the studio only: they start processes and write into the user's data directory."""


def routers(studio: bool = False) -> list[APIRouter]:
    """Return all routers."""
    names = _API_MODULES + (_STUDIO_MODULES if studio else ())
    return [import_module(f"peasy.server.routes.{name}").router for name in names]
