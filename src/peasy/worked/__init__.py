"""Worked examples of attention: all steps, the arithmetic of one cell, worksheets, checking of hand-written tables.

May import: formula, config, errors. Imported by: views, commands.
In: a TOML file, a library name or a sentence. Out: computed steps and the mistakes in hand-written ones.
"""

from peasy.worked.example import Example, WrittenTable, example_names, load_example, read_example
from peasy.worked.solver import WorkedExample, WorkedStep, solve

__all__ = [
    "Example", "WorkedExample", "WorkedStep", "WrittenTable", "example_names", "load_example", "read_example", "solve",
]  # fmt: skip
