"""THE DOCUMENTS' CLAIMS: one experiment each, with its control; the verdict is made from the numbers.

May import: all that the workbench may. Imported by: workbench.experiment.
In: a seed. Out: a finding with tables, pictures, a verdict and its caveat.
"""
