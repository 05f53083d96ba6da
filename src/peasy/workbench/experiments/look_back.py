"""`look-back`: next-token training with and without a causal mask; a leaking mask gives a low loss and bad text."""

from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Matrix, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

if TYPE_CHECKING:
    from peasy.workbench.experiments.learning import Learned

QUESTION = "In training, a token may attend only to earlier tokens. What does a model learn without this causal mask?"
SENTENCE = "The pizza came out of the oven"
LABELS = {"looks back": "causal mask", "looks ahead": "no mask"}
"""Names of the two models in tables and figures."""
BLOCKS: dict[str, Any] = {
    "d_model": 64,
    "position": {"kind": "rotary"},
    "stack": {
        "layers": 2,
        "attention": {"heads": 2, "bias": False, "output_bias": False},
        "feedforward": {"kind": "plain", "width": 256, "activation": "relu-squared", "bias": False},
        "norm": {"kind": "rms"},
    },
}
BOTH_WAYS = {"embedding": {"norm": False, "segments": 0}, "head": {"tied": True, "bias": False, "transform": None}}
HOW = {"optimizer": {"kind": "adamw", "lr": 4e-3, "decay": 0.0}, "schedule": {"kind": "cosine"}, "short": None,
       "context": 64, "batch": 16, "tokenizer": {"by": "words", "vocabulary": 512}}  # fmt: skip


def run(seed: int = 0, hear: Hear = unheard, steps: int = 300, leak: bool = True, texts: int = 20) -> Finding:
    """Train two models with the same blocks, data and steps; `leak=False` uses the causal model twice (the control)."""
    need("torch")
    from peasy.workbench.experiments.learning import learn, some_stories

    stories = some_stories(max(steps, 20))
    causal = learn("gpt", stories, "causal mask", hear, steps=steps, seed=seed, settings={**HOW, "model": BLOCKS})
    if leak:
        settings = {**HOW, "model": BLOCKS | BOTH_WAYS, "objective": {"kind": "next-token"}}
        other = learn("encoder", stories, "no mask", hear, steps=steps, seed=seed, settings=settings)
    else:
        other = causal
    hear("training an n-gram model as the judge ...")
    judge = learn(
        "ngram", stories, "judge", unheard, steps=min(steps, 200), seed=seed, settings={"tokenizer": HOW["tokenizer"]}
    )
    models = {"looks back": causal, "looks ahead": other}
    written = {name: write(learned, texts, seed) for name, learned in models.items()}
    surprise = {name: judge_texts(judge, samples) for name, samples in written.items()}
    return conclude(models, written, surprise, seed)


def write(learned: "Learned", texts: int, seed: int) -> list[str]:
    """Sample continuations without a KV cache: all earlier tokens are recomputed at every step."""
    from peasy.generation.decode import Sampling, generate

    tokenizer = learned.model.need_tokenizer()
    prompts = [list(tokenizer.encode("The", special=False).ids)] * texts
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=seed)
    sequences = generate(learned.model.model, prompts, sampling, cached=False)
    return ["The " + tokenizer.decode(ids).strip() for ids in sequences]


def judge_texts(judge: "Learned", texts: list[str]) -> float:
    """Return the cross-entropy of texts under an n-gram model of the stories, in nats per token."""
    import torch

    tokenizer, model = judge.model.need_tokenizer(), judge.model.model
    total = count = 0.0
    for text in texts:
        ids = torch.tensor([list(tokenizer.encode(text, special=False).ids)])
        if ids.shape[1] > 1:
            logprobs = model(ids[:, :-1]).float().log_softmax(dim=-1)
            total -= float(logprobs.gather(2, ids[:, 1:, None]).sum())
            count += ids.shape[1] - 1
    return total / max(count, 1)


def triangle() -> Matrix:
    """Attention weights under a causal mask when all scores are equal."""
    words = SENTENCE.split()
    equal = np.ones((len(words), 1))
    weights = attend(equal, equal, equal, causal=True).weights
    values = tuple(tuple(float(weight) if weight else None for weight in row) for row in weights)
    return Matrix("causal mask", values, tuple(words), tuple(words), "query", "key", shaded=True)


def conclude(
    both: dict[str, "Learned"], written: dict[str, list[str]], surprise: dict[str, float], seed: int
) -> Finding:
    """Holds if the unmasked model has far too low a loss and its samples are far less likely to the judge."""
    loss = {name: learned.last for name, learned in both.items()}
    better = loss["looks ahead"] < 0.5 * loss["looks back"]
    worse = surprise["looks ahead"] > surprise["looks back"] + 0.5
    verdict = (
        f"Without the mask the loss is {loss['looks ahead']:.3f}, with it {loss['looks back']:.3f}"
        f"{': the model copies the next token instead of predicting it' if better else ''}. The text it generates is "
        f"{'worse' if worse else 'NOT worse'}: its cost to an n-gram model is {surprise['looks ahead']:.2f} nats per "
        f"token without the mask and {surprise['looks back']:.2f} with it."
    )
    rows = tuple((LABELS[name], f"{loss[name]:.3f}", f"{surprise[name]:.2f}", written[name][0]) for name in both)
    parts: tuple[Part, ...] = (
        triangle(),
        Table(("model", "validation loss", "n-gram nats per token", "generated text"), rows),
        Curves("Training on stories", tuple((LABELS[name], both[name].valid) for name in both), "step", "loss"),
    )
    caveat = (
        "Both models have the same blocks, data and steps; only the mask differs. The n-gram model sees three words at "
        "most: it can judge wording, not whether a story makes sense."
    )
    numbers = {"loss": loss, "surprise": surprise, "written": written}
    return Finding("look-back", QUESTION, parts, verdict, better and worse, caveat, numbers, seed)
