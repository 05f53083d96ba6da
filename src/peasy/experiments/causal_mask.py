"""`causal-mask`: next-token training with and without a causal mask; a leaking mask gives a low loss and bad text."""

import numpy as np

from peasy.experiments.models import TrainedModel, stories_for_steps, train_temporary
from peasy.experiments.result import ExperimentResult, OnStatus, curves, ignore_status, make_result, table
from peasy.experiments.statistics import outcome_of
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
    seed: int = 0, on_status: OnStatus = ignore_status, steps: int = 300, leak: bool = True, texts: int = 20
) -> ExperimentResult:
    """Train two models with the same blocks, data and steps; `leak=False` uses the causal model twice (the control)."""
    stories = stories_for_steps(max(steps, 20))
    kinds = {"causal": "gpt", "unmasked": "encoder"} if leak else {"causal": "gpt"}
    models = {
        name: train_temporary(kind, stories, _LABELS[name], on_status, steps=steps, seed=seed, settings=_SETTINGS[name])
        for name, kind in kinds.items()
    }
    models.setdefault("unmasked", models["causal"])
    on_status("training an n-gram model as the judge ...")
    judge_steps = min(steps, 200)
    judge = train_temporary("ngram", stories, "judge", ignore_status, steps=judge_steps, seed=seed, settings=_TOKENIZER)
    samples = {name: _sample_texts(trained, texts, seed) for name, trained in models.items()}
    cross_entropy = {name: _ngram_cross_entropy(judge, sampled) for name, sampled in samples.items()}
    return _conclude(models, samples, cross_entropy, seed)


def _sample_texts(trained: TrainedModel, texts: int, seed: int) -> list[str]:
    """Sample continuations without a KV cache: all earlier tokens are recomputed at every step."""
    from peasy.generation.decode import generate
    from peasy.generation.sampling_params import SamplingParams

    tokenizer = trained.model.require_tokenizer()
    prompts = [trained.model.encode_prompt("The")] * texts
    sampling = SamplingParams(max_tokens=12, temperature=1.0, seed=seed)
    sequences = generate(trained.model.model, prompts, sampling, use_cache=False)
    return [tokenizer.decode([*prompts[0], *ids]) for ids in sequences]


def _ngram_cross_entropy(judge: TrainedModel, texts: list[str]) -> float:
    """Return the cross-entropy of texts under an n-gram model of the stories, in nats per token."""
    import torch

    model = judge.model.model
    total = count = 0.0
    for text in texts:
        ids = torch.tensor([judge.model.encode_prompt(text)])
        if ids.shape[1] > 1:
            logprobs = model(ids[:, :-1]).float().log_softmax(dim=-1)
            total -= float(logprobs.gather(2, ids[:, 1:, None]).sum())
            count += ids.shape[1] - 1
    return total / max(count, 1)


def causal_mask_matrix() -> Matrix:
    """Attention weights under a causal mask when all scores are equal."""
    words = tuple(_SENTENCE.split())
    equal = np.ones((len(words), 1))
    weights = attend(equal, equal, equal, causal=True).weights
    values = tuple(tuple(float(weight) if weight else None for weight in row) for row in weights)
    return Matrix("causal mask", values, words, words, "query", "key", shaded=True)


def _conclude(
    models: dict[str, TrainedModel], samples: dict[str, list[str]], cross_entropy: dict[str, float], seed: int
) -> ExperimentResult:
    """Holds if the unmasked model has far too low a loss and its samples are far less likely to the judge."""
    loss = {name: trained.final_loss for name, trained in models.items()}
    better = loss["unmasked"] < 0.5 * loss["causal"]
    worse = cross_entropy["unmasked"] > cross_entropy["causal"] + 0.5
    verdict = (
        f"Without the mask the loss is {loss['unmasked']:.3f}, with it {loss['causal']:.3f}"
        f"{': the model copies the next token instead of predicting it' if better else ''}. The text it generates is "
        f"{'worse' if worse else 'NOT worse'}: its cost to an n-gram model is {cross_entropy['unmasked']:.2f} nats per "
        f"token without the mask and {cross_entropy['causal']:.2f} with it."
    )
    columns = [("model", ""), ("validation loss", ".3f"), ("n-gram nats per token", ".2f"), ("generated text", "")]
    rows = ((_LABELS[name], loss[name], cross_entropy[name], samples[name][0]) for name in models)
    losses = {_LABELS[name]: trained.validation_curve for name, trained in models.items()}
    parts = (causal_mask_matrix(), table("", columns, rows), curves("Training on stories", losses, "step", "loss"))
    numbers = {"loss": loss, "ngram_cross_entropy": cross_entropy, "samples": samples}
    return make_result("causal-mask", parts, verdict, outcome_of(better and worse), numbers, seed)
