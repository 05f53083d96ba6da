"""Verification: equalities between a model's execution paths, and checks of the user's own attention code.

May import: torch, generation, checkpoint, models, nn, formula, errors. Imported by: views (records only), commands.
In: a model and sequences, or a user's function. Out: a verdict for each equality, or the names of the mistakes.
"""
