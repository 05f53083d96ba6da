"""CHANGING WEIGHTS: what is learned, by which steps, and how a run survives whatever happens to it.

May import: checkpoint, models, nn, corpora, text, config, parts, errors. Imported by: workbench, the doors.
In: a model, batches and a recipe. Out: events, and a run folder that can always be continued.
"""
