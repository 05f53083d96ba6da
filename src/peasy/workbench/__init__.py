"""THE VERBS: what a person asks for, one function each, composing the rooms below.

May import: every room but the doors. Imported by: cli, studio, notebook and the public names of peasy.
In: what a person typed. Out: a Result, which shows, saves and explains itself.
"""
