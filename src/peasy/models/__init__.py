"""Whole models behind one protocol: decoder, encoder, encoder-decoder, RNN, CNN, n-gram and word2vec baselines.

May import: torch, nn, formula, config, errors. Imported by: checkpoint and every package above it.
In: a config, then token ids. Out: logits, hidden states, and activations captured by a tap.
"""
