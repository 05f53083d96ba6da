"""Text generation: batched decoding engine, sampling, beam search, speculative decoding, packed linear layers.

May import: torch, checkpoint, models, nn, tokenization, config, errors. Imported by: verification, commands, server.
In: a model and token ids. Out: a stream of events, one for each token; callers print, stream or store them.
"""
