"""Verification: equalities between a model's execution paths, and checks of the user's own attention code.

May import: torch, generation, checkpoint, models, nn, formula, errors. Imported by: views (records only), commands.
In: a model and sequences, or a user's function. Out: a verdict for each equality, or the names of the mistakes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.verification.equality import prove_model
    from peasy.verification.verdict import Diagnosis, DivergencePoint, Equality, Proof

_LAZY_EXPORTS = {
    "Diagnosis": "peasy.verification.verdict",
    "DivergencePoint": "peasy.verification.verdict",
    "Equality": "peasy.verification.verdict",
    "Proof": "peasy.verification.verdict",
    "prove_model": "peasy.verification.equality",
}

__all__ = ["Diagnosis", "DivergencePoint", "Equality", "Proof", "prove_model"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module 'peasy.verification' has no attribute {name!r}")
    return getattr(import_module(_LAZY_EXPORTS[name]), name)
