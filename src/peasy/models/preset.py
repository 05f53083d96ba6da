"""Presets: known sizes of known models, as data."""
