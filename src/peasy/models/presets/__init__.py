"""KNOWN SIZES: settings of published models and of our own small ones, as TOML.

May import: nothing. Imported by: models, as data.
In: nothing. Out: one table for each preset; `like` names the preset whose values it starts from.
"""
