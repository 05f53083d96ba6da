"""Hugging Face folders in and out: one two-way weight map and config reader per model family.

May import: checkpoint, models, nn configs, errors. Imported by: commands, front ends.
In: a folder with config.json and safetensors. Out: peasy's config and tensors; or the same in reverse.
"""

from peasy.checkpoint.huggingface.arrival import Arrival, load_model, read_folder
from peasy.checkpoint.huggingface.departure import write_folder
from peasy.checkpoint.huggingface.registry import FAMILIES, family_for, recognise

__all__ = ["FAMILIES", "Arrival", "family_for", "load_model", "read_folder", "recognise", "write_folder"]
