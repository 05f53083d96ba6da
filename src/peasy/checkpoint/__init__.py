"""WEIGHTS ON DISK: checkpoints as folders of plain data, and other people's formats in and out.

May import: models, nn, text, config, errors. Imported by: training, generation, looking, workbench, the doors.
In: a folder of safetensors and JSON. Out: a model with its weights, or a new folder that is whole or absent.
"""
