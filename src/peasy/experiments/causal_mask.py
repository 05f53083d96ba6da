"""`causal-mask`: next-token training with and without a causal mask; a leaking mask gives a low loss and bad text."""

from collections.abc import Mapping
from itertools import islice

import numpy as np

from peasy.commands.load import LoadedModel
from peasy.datasets import open_corpus
from peasy.experiments.models import TrainedModel, stories_for_steps, train_temporary
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import Comparison, Outcome
from peasy.formula import attend
from peasy.views.document import Matrix

_SENTENCE = "The pizza came out of the oven"
_LABELS = {"causal": "causal mask", "unmasked": "no mask"}
"""Names of the two models in tables and figures."""
_BLOCKS: dict[str, object] = {
    "d_model": 64,
    "position": {"kind": "rotary"},
    "stack": {
        "num_layers": 2,
        "attention": {"num_heads": 2, "bias": False, "output_bias": False},
        "feedforward": {"kind": "mlp", "d_ff": 256, "activation": "relu-squared", "bias": False},
        "norm": {"kind": "rms"},
    },
}
_UNMASKED: dict[str, object] = {
    "embedding": {"norm": False, "segments": 0},
    "lm_head": {"tied": True, "bias": False, "transform": None},
}
_TOKENIZER: dict[str, object] = {"tokenizer": {"algorithm": "words", "vocab_size": 512}}
_TRAIN_SETTINGS = {
    "optimizer": {"kind": "adamw", "lr": 4e-3, "weight_decay": 0.0},
    "schedule": {"kind": "cosine"},
    "seq_len_warmup": None,
    "seq_len": 64,
    "batch_size": 16,
    **_TOKENIZER,
}
_SETTINGS: dict[str, dict[str, object]] = {
    "causal": {**_TRAIN_SETTINGS, "model": _BLOCKS},
    "unmasked": {**_TRAIN_SETTINGS, "model": _BLOCKS | _UNMASKED, "objective": {"kind": "next-token"}},
}


def run(
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, leak: bool = True, texts: int = 48
) -> ExperimentResult:
    """Train two models with the same blocks, data and steps; `leak=False` uses the causal model twice (the control)."""
    stories = stories_for_steps(max(steps, 20))
    kinds = {"causal": "gpt", "unmasked": "encoder"} if leak else {"causal": "gpt"}
    models = {
        name: train_temporary(kind, stories, _LABELS[name], on_status, steps=steps, seed=seed, settings=_SETTINGS[name])
        for name, kind in kinds.items()
    }
    models.setdefault("unmasked", models["causal"])
    on_status(f"predicting the next token from the beginnings of {texts} texts ...")
    samples = list(islice(open_corpus("stories", num_valid=10**6).texts("valid"), seed * texts, (seed + 1) * texts))
    losses = {name: [prefix_loss(trained.model, text) for text in samples] for name, trained in models.items()}
    examples = {name: _continue(trained.model, seed) for name, trained in models.items()}
    return conclude(models, losses, examples, seed)


def prefix_loss(loaded: LoadedModel, text: str) -> float:
    """Return the loss (nats per token) of a text if each token is predicted from the tokens before it alone."""
    import torch

    ids = list(loaded.encode_prompt(text))
    with torch.inference_mode():
        rows = [loaded.model(torch.tensor([ids[:end]]))[0, -1].float() for end in range(2, len(ids))]
    return float(torch.nn.functional.cross_entropy(torch.stack(rows), torch.tensor(ids[2:])))


def _continue(loaded: LoadedModel, seed: int) -> str:
    """Return a sampled continuation, without a KV cache: all earlier tokens are recomputed at every step."""
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    prompt = loaded.encode_prompt("The")
    ids = generate(loaded.model, [prompt], SamplingParams(max_tokens=12, seed=seed), use_cache=False)[0]
    return loaded.require_tokenizer().decode([*prompt, *ids])


def causal_mask_matrix() -> Matrix:
    """Attention weights under a causal mask when all scores are equal."""
    words = tuple(_SENTENCE.split())
    equal = np.ones((len(words), 1))
    weights = attend(equal, equal, equal, causal=True).weights
    values = tuple(tuple(float(weight) if weight else None for weight in row) for row in weights)
    return Matrix("causal mask", values, words, words, "query", "key", shaded=True)


def conclude(
    models: Mapping[str, TrainedModel], losses: Mapping[str, list[float]], examples: Mapping[str, str], seed: int
) -> ExperimentResult:
    """The loss in training must be lower without the mask, and the loss of predictions from the beginning higher."""
    training = {name: trained.final_loss for name, trained in models.items()}
    means = {name: float(np.mean(by_text)) for name, by_text in losses.items()}
    comparisons = (
        Comparison(
            "in training the mask makes the task harder", "loss without mask", training["unmasked"],
            "with mask", training["causal"], lower=True,
        ),
        Comparison.of_pairs(
            "only with the mask is the next token predicted", "loss from earlier tokens alone", losses["causal"],
            "without mask", losses["unmasked"], lower=True,
        ),
    )  # fmt: skip
    verdict = (
        f"In training, the loss is {training['unmasked']:.3f} without the mask and {training['causal']:.3f} with it. "
        f"From the earlier tokens alone, the next token costs {means['unmasked']:.2f} nats without the mask and "
        f"{means['causal']:.2f} with it: without the mask a model learns to copy the next token, not to predict it."
    )
    if comparisons[1].outcome is not Outcome.SUPPORTED:
        verdict = verdict.rpartition(":")[0] + ": no difference that chance could not make."
    columns = [("model", ""), ("loss in training", ".3f"), ("from earlier tokens", ".2f"), ("generated text", "")]
    rows = ((_LABELS[name], training[name], means[name], examples[name]) for name in models)
    lines = {_LABELS[name]: trained.validation_curve for name, trained in models.items()}
    parts = (causal_mask_matrix(), table("", columns, rows), curves("Training on stories", lines, "step", "loss"))
    numbers = {"training_loss": training, "prefix_loss": losses, "generated": examples}
    return make_result("causal-mask", parts, verdict, comparisons, numbers, seed)
