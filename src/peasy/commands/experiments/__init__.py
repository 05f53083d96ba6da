"""Experiments: claims of the lecture notes, measured against controls; the verdict is computed from the numbers.

May import: all that commands may. Imported by: commands.experiment.
In: a seed. Out: a result with tables, figures, a verdict and its caveat.
"""
