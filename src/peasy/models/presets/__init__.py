"""Model presets as TOML: published models and peasy's own small sizes.

May import: nothing. Imported by: models, as data.
In: nothing. Out: one table per preset; `like` names the preset it inherits from.
"""
