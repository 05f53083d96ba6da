"""Checkpoints: safetensors folders with manifests; import and export of Hugging Face, GGUF and ONNX models.

May import: models, nn, tokenization, config, errors. Imported by: training, generation, inspection, commands, server.
In: a folder of safetensors and JSON. Out: a model with its weights, or a new folder, written atomically.
"""
