"""Training loop, data loaders, objectives, optimizers, checkpoints of a run, DDP and FSDP.

May import: checkpoint, models, nn, datasets, tokenization, config, extras, errors. Imported by: commands, front ends.
In: a model, batches and a recipe. Out: events, and a run folder from which training can always resume.
"""
