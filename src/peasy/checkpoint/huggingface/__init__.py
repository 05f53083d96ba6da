"""HUGGING FACE FOLDERS: one table of rules for each family, read in both directions.

May import: the checkpoint room, models, nn settings, errors. Imported by: workbench, the doors.
In: a folder with config.json and safetensors. Out: our settings and tensors; or the same the other way round.
"""

from peasy.checkpoint.huggingface.arrival import Arrival, load_model, read_folder
from peasy.checkpoint.huggingface.departure import write_folder
from peasy.checkpoint.huggingface.registry import FAMILIES, family_for, recognise

__all__ = ["FAMILIES", "Arrival", "family_for", "load_model", "read_folder", "recognise", "write_folder"]
