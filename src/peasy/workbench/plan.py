"""`plan`: estimate memory and time of a training run, from a few real steps or from formulas for another machine."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Any

from peasy.checkpoint import memory as ram
from peasy.checkpoint.memory import show_bytes
from peasy.corpora import Corpus, Sample, open_corpus, prepare
from peasy.corpora.sample import texts_of
from peasy.errors import UsageError
from peasy.parts import need
from peasy.views.document import Document
from peasy.views.plan import PlanFacts, plan_document
from peasy.views.run import as_time
from peasy.workbench.load import choose_device
from peasy.workbench.result import Result

if TYPE_CHECKING:
    from peasy.training.estimate import Estimate, Machine, Sizes
    from peasy.training.recipe import Recipe
    from peasy.training.setup import Setup

Data = str | Path | Sequence[str | Path] | Corpus
_ENOUGH = 1_000_000
"""Characters of data that a dry run reads for its tokenizer and its batches."""


@dataclass(frozen=True, repr=False)
class PlanResult(Result):
    """Plan of a training run: `numbers` has every quantity in bytes, seconds and counts."""

    facts: PlanFacts
    numbers: dict[str, float | None]

    def document(self) -> Document:
        """Return the estimates and the formulas behind them."""
        return plan_document(self.facts)

    def data(self) -> dict[str, Any]:
        """Return the numbers, and the formulas as text."""
        formulas = {title: list(lines) for title, lines in self.facts.sums}
        return {
            "title": self.facts.title,
            "numbers": self.numbers,
            "formulas": formulas,
            "notes": list(self.facts.notes),
        }

    def __repr__(self) -> str:
        return f"PlanResult({self.facts.title})"


def plan(
    kind: str,
    data: Data | None = None,
    *,
    preset: str = "small",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    settings: Mapping[str, Any] | None = None,
    accelerators: int | None = None,
    flops: str | float | None = None,
    memory: str | float | None = None,
    bandwidth: str | float | None = None,
    use: float = 0.4,
) -> PlanResult:
    """Estimate memory and time of a training run without training.

    With `data`, the speed is measured by a few real steps on this machine. With `accelerators`, `flops`, `memory` and
    `bandwidth` of each ("312T", "80GB", "300GB/s"), the plan is computed for another machine; `kind` may then also be
    a known model, such as gpt2.

    >>> round(plan("gpt2", accelerators=8, flops="312T", memory="80GB", bandwidth="300GB/s").numbers["parameters"])
    124439808
    """
    need("torch")
    from peasy.training.estimate import Machine, read_amount

    given = {"accelerators": accelerators, "flops": flops, "memory": memory, "bandwidth": bandwidth}
    request = _Asked(kind, preset, dict(settings or {}), {"minutes": minutes, "steps": steps, "seed": seed})
    if all(value is None for value in given.values()):
        if data is None:
            raise UsageError(
                "A plan for this machine needs data.",
                hint="For example: --data stories. For another machine: --accelerators --flops --memory --bandwidth.",
            )
        return request.here(data, choose_device(device))
    if missing := [name for name, value in given.items() if value is None]:
        raise UsageError(f"A plan for another machine also needs {', '.join('--' + name for name in missing)}.")
    amounts = (read_amount(flops or 0), read_amount(memory or 0), read_amount(bandwidth or 0))
    return request.on_paper(Machine(accelerators or 0, *amounts, use))


@dataclass(frozen=True)
class _Asked:
    """Validated arguments of `plan`."""

    kind: str
    preset: str
    settings: dict[str, Any]
    budget: dict[str, Any]

    def here(self, data: Data, device: str) -> PlanResult:
        """Plan for this machine by running a few real training steps."""
        from peasy.training.recipe import make_recipe
        from peasy.training.setup import set_up

        data_name = data.name if isinstance(data, Corpus) else str(data)
        recipe = make_recipe(self.kind, self.preset, self.settings, data=data_name, **self.budget)
        corpus = open_corpus(data, **recipe.corpus)
        beginning = Beginning(corpus, _ENOUGH)
        setup = set_up(recipe, beginning, None, device)
        trial = _try(setup, beginning, device)
        return _here(setup, corpus, beginning, trial)

    def on_paper(self, machine: "Machine") -> PlanResult:
        """Plan for another machine by formulas alone."""
        from peasy.models.build import build
        from peasy.training.estimate import Estimate, Sizes
        from peasy.training.optimizer import AdamW

        config, recipe = self._config()
        context = getattr(config, "context", None) or (recipe.context if recipe else 1024)
        rows = recipe.batch if recipe else 8
        model = build(config, seed=None)
        sizes = Sizes.of(model, recipe.optimizer if recipe else AdamW())
        name = f"{self.kind} {self.preset}" if recipe else self.kind
        return _paper(name, Estimate(sizes, machine, rows, context))

    def _config(self) -> "tuple[Any, Recipe | None]":
        from peasy.models.preset import preset, presets
        from peasy.training.recipe import KINDS, make_recipe

        if self.kind not in KINDS and self.kind in {known.name for known in presets()}:
            return preset(self.kind, **self.settings), None
        recipe = make_recipe(self.kind, self.preset, self.settings, **self.budget)
        overrides = {"vocabulary": recipe.tokenizer.vocabulary} if recipe.tokenizer.vocabulary else {}
        return preset(f"{self.kind}-{self.preset}", **overrides | dict(recipe.model)), recipe


class Beginning(Corpus):
    """Corpus view: the first `characters` characters of the train split, a tenth of that of other splits."""

    def __init__(self, corpus: Corpus, characters: int) -> None:
        super().__init__()
        self.inner, self.most = corpus, characters
        self.kind, self.name, self.splits = corpus.kind, corpus.name, corpus.splits

    def read(self, split: str) -> Iterator[Sample]:
        """Yield documents until the limit is reached."""
        return (sample for sample, _ in self.pieces(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        """Yield documents, each with whether it ends there."""
        left = self.most if split == "train" else self.most // 10
        for sample, ends in self.inner.pieces(split):
            yield (sample[:left] if isinstance(sample, str) else sample), ends
            left -= sum(map(len, texts_of(sample)))
            if left <= 0:
                return


@dataclass(frozen=True)
class Trial:
    """Measurements of a few real training steps."""

    sizes: "Sizes | None"
    parameters: int
    activations: int
    tokens: int
    seconds: float
    per_character: float
    samples: int


def _try(setup: "Setup", corpus: Corpus, device: str, count: int = 3) -> Trial:
    """Build the model, train a few steps on real batches, and discard everything."""
    from peasy.training.chance import generator
    from peasy.training.estimate import Sizes
    from peasy.training.feed import Frame, choose_feed
    from peasy.training.objective import Counting
    from peasy.training.setup import build_model

    recipe, objective = setup.recipe, setup.recipe.objective
    assert objective is not None, "settled by set_up"
    model = build_model(setup).to(device).train()
    learner = _learner(model, setup)
    rows, context = recipe.rows_and_context(1.0)
    with TemporaryDirectory() as folder:
        shards = prepare(corpus, setup.tokenizer, Path(folder) / "shards")
        loader = choose_feed(shards, objective, model.config.special, Frame.of(setup.tokenizer), seed=recipe.seed)
        times, tokens, activation_bytes = [], 0, 0
        for step in range(count + 1):
            batch = objective.prepare(
                loader.batch(step * rows, rows, context), model.config, generator(recipe.seed, step)
            )
            batch = {name: array.to(device) for name, array in batch.items()}
            if step == 0 and not isinstance(objective, Counting):
                activation_bytes = measure_activations(model, objective, batch, recipe.precision)
            start = perf_counter()
            parts = [{k: a[i :: recipe.accumulate] for k, a in batch.items()} for i in range(recipe.accumulate)]
            learner.learn(parts, step + 1, 0.01)
            times.append(perf_counter() - start)
            tokens += batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        characters = corpus.surveyed.sizes["train"].characters
        train_tokens, samples = shards.tokens("train"), loader.samples(context)
    sizes = None if isinstance(objective, Counting) else Sizes.of(model, recipe.optimizer)
    activation_bytes //= recipe.accumulate
    seconds = median(times[1:])
    per_character = train_tokens / max(characters, 1)
    parameters, tokens_per_step = model.count_parameters(), tokens // (count + 1)
    return Trial(sizes, parameters, activation_bytes, tokens_per_step, seconds, per_character, samples)


def _learner(model: Any, setup: "Setup") -> Any:
    from peasy.training.learner import CountingLearner, GradientLearner
    from peasy.training.objective import Counting
    from peasy.training.optimizer import Optimizer

    recipe, objective = setup.recipe, setup.recipe.objective
    if isinstance(objective, Counting):
        return CountingLearner(model, objective)
    assert objective is not None
    optimizer = Optimizer(model, recipe.optimizer, bfloat16=recipe.precision == "bfloat16")
    return GradientLearner(model, objective, optimizer, seed=recipe.seed, clip=recipe.clip, precision=recipe.precision)


def measure_activations(model: Any, objective: Any, batch: Any, precision: str) -> int:
    """Return the bytes that autograd saves for the backward pass, without the weights."""
    import torch

    from peasy.training.precision import cast

    weights = {weight.untyped_storage().data_ptr() for weight in model.state_dict().values()}
    saved: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), cast(precision, str(model.device)):
        objective.total(model, batch)
    return sum(saved.values())


def _here(setup: "Setup", corpus: Corpus, beginning: Corpus, trial: Trial) -> PlanResult:
    recipe, sizes = setup.recipe, trial.sizes
    tokens_per_second = trial.tokens / trial.seconds
    fraction = beginning.surveyed.sizes["train"].characters / max(corpus.surveyed.sizes["train"].characters, 1)
    data_tokens = corpus.surveyed.sizes["train"].characters * trial.per_character
    epoch = max(1, round(trial.samples / fraction / recipe.batch))
    steps, seconds = _length(recipe, trial.seconds, epoch)
    rows = [
        ("parameters", f"{trial.parameters:,}", "counted"),
        ("tokens in the data", f"{data_tokens:,.0f}", f"from the first {min(fraction, 1):.0%} of it"),
        ("tokens per step", f"{trial.tokens:,}", "of real batches"),
        ("tokens per second", f"{tokens_per_second:,.0f}", "measured on this machine in three steps"),
        ("steps", f"{steps:,}", _why(recipe)),
        ("time", as_time(seconds), f"{trial.seconds:.3f} s per step, without validation and saving"),
        ("epochs", f"{steps / epoch:.2f}", f"{epoch:,} steps each"),
    ]
    numbers: dict[str, float | None] = {
        "parameters": trial.parameters, "tokens_per_step": trial.tokens, "tokens_per_second": tokens_per_second,
        "seconds_per_step": trial.seconds, "steps": steps, "seconds": seconds, "epochs": steps / epoch,
    }  # fmt: skip
    verdict: tuple[str, bool] | None = None
    sums: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if sizes is not None:
        total = 2 * sizes.weights + sizes.optimizer + trial.activations
        state = {"weights": sizes.weights, "gradients": sizes.weights, "optimizer": sizes.optimizer}
        rows += [(name, show_bytes(count), "counted") for name, count in state.items()]
        rows += [
            ("activations", show_bytes(trial.activations), "measured in one forward pass"),
            ("memory", show_bytes(total), ""),
        ]
        numbers |= {**state, "activations": trial.activations, "memory": total}
        sums, verdict = (_state_sums(sizes, state),), _fits(total, ram.available(), "this machine has free")
    notes = ("Nothing was saved. Other running programs slow down training as they slow down this measurement.",)
    title = f"Plan: {recipe.trains} {recipe.preset} on {recipe.data}"
    says = (
        f"Seed {recipe.seed}, batches of {recipe.batch} samples of up to {recipe.context:,} tokens, {recipe.precision}."
    )
    return PlanResult(PlanFacts(title, says, tuple(rows), sums, notes, verdict), numbers)


def _length(recipe: "Recipe", seconds: float, epoch: int) -> tuple[int, float]:
    if recipe.steps is not None:
        return recipe.steps, recipe.steps * seconds
    if recipe.minutes is not None:
        return max(1, int(recipe.minutes * 60 / seconds)), recipe.minutes * 60
    return epoch, epoch * seconds


def _why(recipe: "Recipe") -> str:
    if recipe.steps is not None:
        return "as requested"
    return f"as many as fit into {recipe.minutes:g} minutes" if recipe.minutes is not None else "one epoch"


def _multiplied(sizes: "Sizes") -> str:
    """Formula text of the parameters that take part in matrix products; n-gram embeddings are only looked up."""
    return f"(parameters - {sizes.tables:,} n-gram embeddings)" if sizes.tables else "parameters"


def _state_sums(sizes: "Sizes", held: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
    n, muon, adam = sizes.parameters, sizes.matrices, sizes.parameters - sizes.matrices
    optimizer_state = f"4 · ({f'{muon:,} + ' if muon else ''}2 · {adam:,} + {sizes.tensors})"
    return "weights, gradients and optimizer, in float32", (
        f"weights = 4 bytes · {n:,} parameters = {show_bytes(held['weights'])}",
        f"gradients = the same = {show_bytes(held['gradients'])}",
        "optimizer = 4 bytes · (1 per parameter of Muon + 2 per parameter of Adam + 1 step count per tensor)",
        f"optimizer = {optimizer_state} = {show_bytes(held['optimizer'])}",
    )


def _fits(needed: float, free: float | None, whose: str) -> tuple[str, bool] | None:
    if free is None:
        return None
    fits = needed <= free
    return f"{show_bytes(needed)} {'fit' if fits else 'do not fit'} into the {show_bytes(free)} that {whose}.", fits


def _paper(name: str, estimate: "Estimate") -> PlanResult:
    sizes, machine = estimate.sizes, estimate.machine
    rows = [("parameters", f"{sizes.parameters:,}", "counted"),
            ("activations", show_bytes(estimate.activations), "on each accelerator")]  # fmt: skip
    numbers: dict[str, float | None] = {"parameters": sizes.parameters, "weights": sizes.weights,
                                        "gradients": sizes.weights, "optimizer": sizes.optimizer,
                                        "activations": estimate.activations}  # fmt: skip
    for way in ("ddp", "fsdp"):
        memory, step = estimate.held(way), estimate.step(way)
        fits = "fits" if memory <= machine.memory else f"does not fit into {show_bytes(machine.memory)}"
        rows += [
            (f"memory, {way.upper()}", show_bytes(memory), f"on each accelerator: {fits}"),
            (f"time per step, {way.upper()}", f"{step:.4g} s", "the longer of computation and communication"),
            (f"tokens per day, {way.upper()}", f"{estimate.tokens_per_day(way):.4g}", "on all accelerators together"),
        ]
        numbers |= {f"memory_{way}": memory, f"seconds_per_step_{way}": step,
                    f"tokens_per_day_{way}": estimate.tokens_per_day(way)}  # fmt: skip
    cache = show_bytes(estimate.cache) if estimate.cache else "none"
    rows.append(("KV cache", cache, f"16 bits, one sequence of {estimate.context:,} tokens"))
    numbers["cache"] = estimate.cache
    says = (
        f"Calculated: nothing was measured. {machine.accelerators} accelerators of {machine.flops:.3g} FLOP/s, "
        f"{show_bytes(machine.memory)} and {machine.bandwidth:.3g} bytes/s each; {estimate.rows} samples of "
        f"{estimate.context:,} tokens on each."
    )
    note = (
        f"Real runs differ: {machine.use:.0%} utilization of the FLOP/s is assumed, and that communication overlaps "
        "with computation."
    )
    facts = PlanFacts(f"Calculated plan: {name}", says, tuple(rows), _paper_sums(estimate), (note,))
    return PlanResult(facts, numbers)


def _paper_sums(estimate: "Estimate") -> tuple[tuple[str, tuple[str, ...]], ...]:
    sizes, machine, n = estimate.sizes, estimate.machine, estimate.machine.accelerators
    held = {"weights": sizes.weights, "gradients": sizes.weights, "optimizer": sizes.optimizer}
    tokens, state = estimate.tokens, show_bytes(estimate.state)
    return (
        _state_sums(sizes, held),
        ("activations, 16 bits, fused attention (34 bytes per token, layer and unit of d_model; logits)", (
            "activations = 34 · tokens · d_model · layers + (2 + 4) · tokens · vocabulary size",
            f"= 34 · {tokens:,} · {sizes.d_model:,} · {sizes.layers} + 6 · {tokens:,} · {sizes.vocabulary:,}",
            f"= {show_bytes(estimate.activations)}",
        )),
        ("memory on each accelerator", (
            f"DDP = weights + gradients + optimizer + activations = {show_bytes(estimate.held('ddp'))}",
            f"FSDP = {state} / {n} + one full block + activations = {show_bytes(estimate.held('fsdp'))}",
        )),
        ("time per step", (
            f"work = 6 · {_multiplied(sizes)} + 6 · layers · d_model · context FLOP per token",
            f"computation = tokens · work / (FLOP/s · {machine.use:g}) = {estimate.computing:.4g} s",
            f"communication, DDP = 2 · ({n} - 1) / {n} · weights / bandwidth = {estimate.sending('ddp'):.4g} s",
            f"communication, FSDP = 3 · ({n} - 1) / {n} · weights / bandwidth = {estimate.sending('fsdp'):.4g} s",
            "tokens per day = accelerators · tokens · 86,400 s / max(computation, communication)",
        )),
        ("KV cache", (
            "cache = 2 (key and value) · layers · KV heads · d_head · 2 bytes · context",
            f"= {sizes.cached:,} · 2 · {estimate.context:,} = {show_bytes(estimate.cache)}",
        )),
    )  # fmt: skip
