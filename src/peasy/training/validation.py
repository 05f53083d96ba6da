"""Validation during training: mean loss on the validation split, bounded in tokens and time."""

import math

import torch

from peasy.models.protocol import Model
from peasy.training.data_loader import DataLoader
from peasy.training.event import Validated
from peasy.training.learner import autocast, choose_precision, seeded_generator
from peasy.training.objective import Objective
from peasy.training.recipe import Recipe
from peasy.training.schedule import Budget
from peasy.training.state import Progress

_FINAL_VALIDATION_FACTOR = 50
"""The last validation may use this many times `validation_tokens`."""

_TRAIN_TOKENS_PER_VALIDATION_TOKEN = 16
"""Intermediate validations use at most one token per this many training tokens, so that they take less time."""

_VALIDATION_OVERTIME = 0.1
"""With a time budget, the last validation may take at most this fraction of the budget in addition."""


class Validator:
    """Measures the validation loss: on a subset during the run, on more at the end."""

    def __init__(
        self, model: Model, objective: Objective, data_loader: DataLoader, recipe: Recipe, budget: Budget
    ) -> None:
        self.model, self.objective, self.data_loader = model, objective, data_loader
        self.recipe, self.budget, self.device = recipe, budget, str(model.device)

    @torch.inference_mode()
    def validate(self, progress: Progress, *, last: bool) -> Validated | None:
        """Return the mean validation loss; None without validation data, or if the loss is not finite."""
        recipe, budget, device = self.recipe, self.budget, self.device
        seq_len, max_tokens = recipe.seq_len if last else progress.seq_len, self._num_tokens(progress.tokens, last)
        batch_size = max(1, min(2 * recipe.batch_size, 16_384 // seq_len))
        overtime = math.inf if budget.seconds is None else _VALIDATION_OVERTIME * budget.seconds
        deadline = math.inf if budget.seconds is None else budget.elapsed + overtime
        precision = choose_precision(recipe.precision, device)
        total, count = 0.0, 0
        self.model.eval()
        for number, batch in enumerate(self.data_loader.validation(batch_size, seq_len)):
            batch = self.objective.prepare(batch, self.model.config, seeded_generator(recipe.seed, 0, number))
            batch = {name: array.to(device) for name, array in batch.items()}
            with autocast(precision, device):
                total += float(self.objective.loss_sum(self.model, batch))
            count += self.objective.num_targets(batch)
            is_enough = count >= min(max_tokens, recipe.validation_tokens)
            if count >= max_tokens or (is_enough and budget.elapsed > deadline):
                break
        self.model.train()
        if not count or not math.isfinite(total):
            return None
        return Validated(progress.step, total / count, count, budget.elapsed)

    def _num_tokens(self, trained: int, last: bool) -> int:
        configured = self.recipe.validation_tokens
        if last:
            return min(_FINAL_VALIDATION_FACTOR * configured, max(configured, trained))
        return min(configured, trained // _TRAIN_TOKENS_PER_VALIDATION_TOKEN)
