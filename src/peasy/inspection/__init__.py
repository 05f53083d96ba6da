"""Inspection of a model: attention capture, logit lens, head scores, alignment, interventions.

May import: torch, checkpoint, models, nn, tokenization, formula, config, errors. Imported by: views, commands.
In: a model, token ids and a capture spec. Out: results: plain arrays with token labels for rows and columns.
"""
