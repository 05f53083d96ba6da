"""LOOKING IN: what any head of any model looked at, what it does, and what changes when it is switched off.

May import: torch, checkpoint, models, nn, text, formula, config, errors. Imported by: views (records), workbench.
In: a model, ids and what is asked for. Out: records, plain arrays with the tokens that name their rows and columns.
"""
