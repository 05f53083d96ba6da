"""Metrics: functions of numbers and texts only, such as perplexity, BLEU, Spearman correlation and k-means.

May import: errors. Imported by: evaluation, experiments, commands, training.
In: arrays, token counts, texts. Out: numbers.
"""
