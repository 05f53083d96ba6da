"""Verification: equalities between a model's execution paths, and checks of the user's own attention code.

May import: torch, generation, checkpoint, models, nn, formula, errors. Imported by: views (records only), commands.
In: a model and sequences, or a user's function. Out: a verdict for each equality, or the names of the mistakes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peasy.proof.doctor.diagnosis import Diagnosis
    from peasy.proof.equality import prove_model
    from peasy.proof.verdict import Equality, Proof, Where

_HOMES = {
    "Diagnosis": "peasy.proof.doctor.diagnosis",
    "Equality": "peasy.proof.verdict",
    "Proof": "peasy.proof.verdict",
    "Where": "peasy.proof.verdict",
    "prove_model": "peasy.proof.equality",
}

__all__ = ["Diagnosis", "Equality", "Proof", "Where", "prove_model"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peasy.proof' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
