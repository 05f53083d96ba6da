"""`look-back`: the same model with a mask that leaks scores absurdly well, and has learned nothing to write with."""

from typing import TYPE_CHECKING, Any

import numpy as np

from peasy.formula import attend
from peasy.parts import need
from peasy.views.document import Curves, Matrix, Part, Table
from peasy.workbench.experiments.finding import Finding, Hear, unheard

if TYPE_CHECKING:
    from peasy.workbench.experiments.learning import Learned

QUESTION = "While training, a token may only look back. What happens to a model that may look ahead?"
SENTENCE = "The pizza came out of the oven"
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
    """Train twice with the same blocks, data and steps; `leak=False` trains the honest model in both places."""
    need("torch")
    from peasy.workbench.experiments.learning import learn, some_stories

    stories = some_stories(max(steps, 20))
    honest = learn("gpt", stories, "looks back", hear, steps=steps, seed=seed, settings={**HOW, "model": BLOCKS})
    if leak:
        settings = {**HOW, "model": BLOCKS | BOTH_WAYS, "objective": {"kind": "next-token"}}
        other = learn("encoder", stories, "looks ahead", hear, steps=steps, seed=seed, settings=settings)
    else:
        other = honest
    hear("an n-gram model reads the stories, to judge ...")
    judge = learn(
        "ngram", stories, "judge", unheard, steps=min(steps, 200), seed=seed, settings={"tokenizer": HOW["tokenizer"]}
    )
    both = {"looks back": honest, "looks ahead": other}
    written = {name: write(each, texts, seed) for name, each in both.items()}
    surprise = {name: judge_texts(judge, found) for name, found in written.items()}
    return conclude(both, written, surprise, seed)


def write(learned: "Learned", texts: int, seed: int) -> list[str]:
    """What a model writes after a beginning, each token from all before it, read anew each time."""
    from peasy.generation.decode import Sampling, generate

    tokenizer = learned.model.need_tokenizer()
    prompts = [list(tokenizer.encode("The", special=False).ids)] * texts
    sampling = Sampling(max_tokens=12, temperature=1.0, seed=seed)
    found = generate(learned.model.model, prompts, sampling, cached=False)
    return ["The " + tokenizer.decode(ids).strip() for ids in found]


def judge_texts(judge: "Learned", texts: list[str]) -> float:
    """How surprising texts are to a model that has counted the stories: nats for each token."""
    import torch

    tokenizer, model = judge.model.need_tokenizer(), judge.model.model
    total = count = 0.0
    for text in texts:
        ids = torch.tensor([list(tokenizer.encode(text, special=False).ids)])
        if ids.shape[1] > 1:
            chances = model(ids[:, :-1]).float().log_softmax(dim=-1)
            total -= float(chances.gather(2, ids[:, 1:, None]).sum())
            count += ids.shape[1] - 1
    return total / max(count, 1)


def triangle() -> Matrix:
    """Who sees whom: the weights of a causal attention to which all words are alike."""
    words = SENTENCE.split()
    alike = np.ones((len(words), 1))
    weights = attend(alike, alike, alike, causal=True).weights
    values = tuple(tuple(float(each) if each else None for each in row) for row in weights)
    return Matrix("who sees whom", values, tuple(words), tuple(words), "query", "key", shaded=True)


def conclude(
    both: dict[str, "Learned"], written: dict[str, list[str]], surprise: dict[str, float], seed: int
) -> Finding:
    """The leak shows when the loss is far too good and the judge finds the text far worse."""
    loss = {name: each.last for name, each in both.items()}
    better = loss["looks ahead"] < 0.5 * loss["looks back"]
    worse = surprise["looks ahead"] > surprise["looks back"] + 0.5
    verdict = (
        f"The model that looks ahead has a loss of {loss['looks ahead']:.3f} against {loss['looks back']:.3f}; a "
        f"counting judge finds what it writes {'more' if worse else 'not more'} surprising: "
        f"{surprise['looks ahead']:.2f} against {surprise['looks back']:.2f} nats a token."
    )
    rows = tuple((name, f"{loss[name]:.3f}", f"{surprise[name]:.2f}", written[name][0]) for name in both)
    parts: tuple[Part, ...] = (
        triangle(),
        Table(("model", "held-out loss", "surprise of its text", "what it writes"), rows),
        Curves("Learning the stories", tuple((name, each.valid) for name, each in both.items()), "step", "loss"),
    )
    caveat = (
        "Both models have the same blocks, data and steps; only the mask differs. The judge counts up to three words: "
        "it knows good wording, not good stories."
    )
    numbers = {"loss": loss, "surprise": surprise, "written": written}
    return Finding("look-back", QUESTION, parts, verdict, better and worse, caveat, numbers, seed)
