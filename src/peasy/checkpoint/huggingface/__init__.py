"""Hugging Face folders in and out: one two-way weight map and config reader per model family.

May import: checkpoint, models, nn configs, errors. Imported by: commands, front ends.
In: a folder with config.json and safetensors. Out: peasy's config and tensors; or the same in reverse.
"""

from peasy.checkpoint.huggingface.folder import HFCheckpoint, load_model, read_folder, write_folder
from peasy.checkpoint.huggingface.registry import FAMILIES, detect_family, family_for

__all__ = ["FAMILIES", "HFCheckpoint", "detect_family", "family_for", "load_model", "read_folder", "write_folder"]
