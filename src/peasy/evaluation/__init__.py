"""Evaluation of a model on a data set: loss and perplexity, BLEU of translations, sentence similarity, retrieval.

May import: training, generation, inspection, checkpoint and below, metrics. Imported by: commands, experiments.
In: a model with its tokenizer and a data set. Out: metrics.
"""
