"""EXAMPLES ON PAPER: typed examples, all their steps, the arithmetic of one number, symbols, worksheets, checking.

May import: formula, config, errors. Imported by: views, workbench.
In: a TOML file, a library name or a sentence. Out: worked steps and what is wrong in written ones.
"""

from peasy.worked.example import Example, Written, example_names, load_example, read_example
from peasy.worked.work import Worked, WorkedStep, work

__all__ = [
    "Example", "Worked", "WorkedStep", "Written", "example_names", "load_example", "read_example", "work",
]  # fmt: skip
