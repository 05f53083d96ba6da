"""Experiments: claims of the lecture notes, measured against controls; the verdict is computed from the numbers.

May import: commands and what they may. Imported by: cli, server.
In: a seed. Out: a result with tables, figures, a verdict and its caveat.
"""
