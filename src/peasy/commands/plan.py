"""`plan`: estimate memory and time of a training run, from a few real steps or from formulas for another machine."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from annotated_types import Gt, Le

from peasy.checkpoint import ram
from peasy.checkpoint.ram import format_bytes, parse_amount
from peasy.commands.load import choose_device
from peasy.commands.recipe_changes import DataSource, open_training_data, recipe_changes, with_suggested_settings
from peasy.commands.result import JsonDict, Result
from peasy.datasets import Corpus, Sample
from peasy.datasets.corpus import sample_texts
from peasy.datasets.shards import prepare_shards
from peasy.errors import UsageError
from peasy.extras import require_extra
from peasy.models import preset as models
from peasy.models.preset import ModelSize
from peasy.parameters import Record
from peasy.views.document import Arithmetic, Document, DocumentPart, Heading, Paragraph, Table, format_duration

if TYPE_CHECKING:
    from torch import Tensor

    from peasy.models.protocol import Model
    from peasy.training.estimate import Hardware, ModelSizes, TrainingEstimate
    from peasy.training.objective import Batch, Objective
    from peasy.training.setup import RunSetup

_DRY_RUN_CHARACTERS = 1_000_000
"""Characters of data that a dry run reads for its tokenizer and its batches."""
_DRY_RUN_STEPS = 3


class PlanResult(Result):
    """Plan of a training run: `numbers` has every quantity in bytes, seconds and counts.

    `rows` are (quantity, value, basis); `formulas` are (title, lines of arithmetic); `verdict`: whether it fits.
    """

    title: str
    description: str
    rows: tuple[tuple[str, str, str], ...]
    numbers: dict[str, float]
    formulas: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    verdict: tuple[str, bool] | None = None

    def document(self) -> Document:
        """Return the estimates, whether they fit in memory, and the formulas behind them."""
        parts: list[DocumentPart] = [Paragraph(self.description), Table(("quantity", "value", "basis"), self.rows)]
        if self.verdict is not None:
            parts.append(Paragraph(self.verdict[0], "good" if self.verdict[1] else "bad"))
        if self.formulas:
            parts += [Heading("Formulas"), *(Arithmetic(title, lines) for title, lines in self.formulas)]
        return Document(self.title, (*parts, *(Paragraph(note, "note") for note in self.notes)))

    def data(self) -> JsonDict:
        """Return the numbers, and the formulas as text."""
        formulas = {title: list(lines) for title, lines in self.formulas}
        return {"title": self.title, "numbers": self.numbers, "formulas": formulas, "notes": list(self.notes)}

    def __repr__(self) -> str:
        return f"PlanResult({self.title})"


def plan(
    kind: str,
    data: DataSource | None = None,
    *,
    preset: ModelSize | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    lr: float | None = None,
    batch_size: int | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
    accelerators: int | None = None,
    flops: str | float | None = None,
    memory: str | float | None = None,
    bandwidth: str | float | None = None,
    mfu: Annotated[float, Gt(0), Le(1)] = 0.4,
) -> PlanResult:
    """Estimate memory and time of a training run without training.

    With `data`, the speed is measured by a few real steps on this machine. With `accelerators`, `flops`, `memory` and
    `bandwidth`, the plan is computed for another machine.

    Args:
        kind: Model kind: gpt, encoder, translator, ...; for other hardware also a known model such as gpt2.
        data: Built-in dataset (see peasy data), file, folder, or several files.
        preset: Size of the model; default: small.
        minutes: Training time.
        steps: Number of training steps, instead of minutes.
        lr: Learning rate: the setting optimizer.lr.
        batch_size: Number of sequences per step: the setting batch_size.
        config: File of settings in TOML or JSON, with the same names as --set.
        settings: Changes to the recipe, over those of `config`.
        accelerators: Number of accelerators.
        flops: FLOP/s of each accelerator, such as 312T.
        memory: Memory of each accelerator, such as 80GB.
        bandwidth: Interconnect bandwidth of each accelerator, such as 300GB/s.
        mfu: Model FLOPs utilization (MFU), from 0 to 1.

    >>> round(plan("gpt2", accelerators=8, flops="312T", memory="80GB", bandwidth="300GB/s").numbers["parameters"])
    124439808
    """
    require_extra("torch")  # before a plan without data is refused
    changes = recipe_changes(settings, config=config, lr=lr, batch_size=batch_size)
    budget = {"minutes": minutes, "steps": steps, "seed": seed}
    hardware = {"accelerators": accelerators, "flops": flops, "memory": memory, "bandwidth": bandwidth}
    if all(value is None for value in hardware.values()):
        if data is None:
            hint = "For example: --data stories. For another machine: --accelerators --flops --memory --bandwidth."
            raise UsageError("A plan for this machine needs data.", hint=hint)
        return _measure(kind, preset, changes, budget, data, choose_device(device))
    if accelerators is None or flops is None or memory is None or bandwidth is None:
        missing = ", ".join(f"--{name}" for name, value in hardware.items() if value is None)
        raise UsageError(f"A plan for another machine also needs {missing}.")
    from peasy.training.estimate import Hardware

    machine = Hardware(accelerators, parse_amount(flops), parse_amount(memory), parse_amount(bandwidth), mfu)
    return _calculate(kind, preset, changes, budget, machine)


def _measure(
    kind: str, preset: str | None, changes: JsonDict, budget: Mapping[str, float | None], data: DataSource, device: str
) -> PlanResult:
    from peasy.training.recipe import make_recipe
    from peasy.training.setup import resolve_setup

    data_name = data.name if isinstance(data, Corpus) else str(data)
    corpus = open_training_data(kind, data, changes.get("data_options", {}))
    settings = with_suggested_settings(kind, corpus, changes)
    recipe = make_recipe(kind, preset, settings, data=data_name, **budget)
    beginning = TruncatedCorpus(corpus, _DRY_RUN_CHARACTERS)
    setup = resolve_setup(recipe, beginning, None, device)
    return _measured_plan(setup, corpus, beginning, _dry_run(setup, beginning, device))


def _calculate(
    kind: str, preset: str | None, changes: JsonDict, budget: Mapping[str, float | None], machine: "Hardware"
) -> PlanResult:
    """Plan for another machine by formulas alone; `kind` may also be a known model, such as gpt2."""
    from peasy.models.build import build
    from peasy.training.estimate import ModelSizes, TrainingEstimate
    from peasy.training.optimizer import AdamWConfig, OptimizerConfig
    from peasy.training.recipe import MODEL_KINDS, make_recipe

    optimizer: OptimizerConfig
    if kind not in MODEL_KINDS and kind in {known.name for known in models.presets()}:
        name, config, optimizer, batch_size, seq_len = kind, models.preset(kind, **changes), AdamWConfig(), 8, 1024
    else:
        recipe = make_recipe(kind, preset, changes, **budget)
        overrides = {"vocab_size": recipe.tokenizer.vocab_size} if recipe.tokenizer.vocab_size else {}
        name = f"{kind} {recipe.preset}"
        config = models.preset(f"{kind}-{recipe.preset}", **overrides | dict(recipe.model))
        optimizer, batch_size, seq_len = recipe.optimizer, recipe.batch_size, recipe.seq_len
    sizes = ModelSizes.of(build(config, seed=None), optimizer)
    context = config.max_seq_len or seq_len
    return _calculated_plan(name, TrainingEstimate(sizes, machine, batch_size, context))


class TruncatedCorpus(Corpus):
    """Corpus view: the first `characters` characters of the train split, a tenth of that of other splits."""

    def __init__(self, corpus: Corpus, characters: int) -> None:
        super().__init__()
        self.inner, self.max_characters = corpus, characters
        self.kind, self.name, self.splits = corpus.kind, corpus.name, corpus.splits

    def read(self, split: str) -> Iterator[Sample]:
        return (sample for sample, _ in self.pieces(split))

    def pieces(self, split: str = "train") -> Iterator[tuple[Sample, bool]]:
        remaining = self.max_characters if split == "train" else self.max_characters // 10
        for sample, ends in self.inner.pieces(split):
            yield (sample[:remaining] if isinstance(sample, str) else sample), ends
            remaining -= sum(map(len, sample_texts(sample)))
            if remaining <= 0:
                return


class _DryRun(Record):
    sizes: "ModelSizes | None"
    parameters: int
    activation_bytes: int
    tokens: int
    seconds: float
    tokens_per_character: float
    samples: int


def _dry_run(setup: "RunSetup", corpus: Corpus, device: str) -> _DryRun:
    """Build the model, train a few steps on real batches, and discard everything."""
    from peasy.training.data_loader import SpecialTokens, make_data_loader
    from peasy.training.estimate import ModelSizes
    from peasy.training.learner import make_learner, seeded_generator, split_batch
    from peasy.training.objective import NGramCounting
    from peasy.training.setup import build_model

    recipe, objective = setup.recipe, setup.recipe.objective
    assert objective is not None, "set by resolve_setup"
    model = build_model(setup).to(device).train()
    learner = make_learner(model, objective, recipe)
    rows, context = recipe.batch_shape(1.0)
    with TemporaryDirectory() as folder:
        shards = prepare_shards(corpus, setup.tokenizer, Path(folder) / "shards")
        special, frame = model.config.special_tokens, SpecialTokens.from_tokenizer(setup.tokenizer)
        loader = make_data_loader(shards, objective, special, frame, seed=recipe.seed, sample_unit=recipe.sample_unit)
        times, tokens, activation_bytes = [], 0, 0
        for step in range(_DRY_RUN_STEPS + 1):  # the first one is slower
            batch = loader.batch(step * rows, rows, context)
            batch = objective.prepare(batch, model.config, seeded_generator(recipe.seed, step))
            micro_batches = split_batch(batch, recipe.grad_accum_steps, device)
            if step == 0 and not isinstance(objective, NGramCounting):
                activation_bytes = measure_activations(model, objective, micro_batches[0], recipe.precision)
            start = perf_counter()
            learner.step(micro_batches, step + 1, 0.01)
            times.append(perf_counter() - start)
            tokens += batch["ids"].numel() + (batch["source"].numel() if "source" in batch else 0)
        characters = corpus.cached_survey.sizes["train"].characters
        train_tokens, samples = shards.num_tokens("train"), loader.num_samples(context)
    return _DryRun(
        None if isinstance(objective, NGramCounting) else ModelSizes.of(model, recipe.optimizer),
        model.count_parameters(), activation_bytes, tokens // len(times), median(times[1:]),
        train_tokens / max(characters, 1), samples,
    )  # fmt: skip


def measure_activations(model: "Model", objective: "Objective", batch: "Batch", precision: str) -> int:
    """Return the bytes that autograd saves for the backward pass, without the weights."""
    import torch

    from peasy.training.learner import autocast

    weights = {weight.untyped_storage().data_ptr() for weight in model.state_dict().values()}
    saved: dict[int, int] = {}

    def pack(tensor: "Tensor") -> "Tensor":
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), autocast(precision, str(model.device)):
        objective.loss_sum(model, batch)
    return sum(saved.values())


def _measured_plan(setup: "RunSetup", corpus: Corpus, truncated: Corpus, dry_run: _DryRun) -> PlanResult:
    recipe, sizes = setup.recipe, dry_run.sizes
    tokens_per_second = dry_run.tokens / dry_run.seconds
    read, characters = (one.cached_survey.sizes["train"].characters for one in (truncated, corpus))
    fraction, data_tokens = read / max(characters, 1), characters * dry_run.tokens_per_character
    epoch = max(1, round(dry_run.samples / fraction / recipe.batch_size))
    if recipe.steps is not None:
        steps, seconds, reason = recipe.steps, recipe.steps * dry_run.seconds, "as requested"
    elif recipe.minutes is not None:
        steps, seconds = max(1, int(recipe.minutes * 60 / dry_run.seconds)), recipe.minutes * 60
        reason = f"as many as fit into {recipe.minutes:g} minutes"
    else:
        steps, seconds, reason = epoch, epoch * dry_run.seconds, "one epoch"
    rows = [
        ("parameters", f"{dry_run.parameters:,}", "counted"),
        ("tokens in the data", f"{data_tokens:,.0f}", f"from the first {min(fraction, 1):.0%} of it"),
        ("tokens per step", f"{dry_run.tokens:,}", "of real batches"),
        ("tokens per second", f"{tokens_per_second:,.0f}", "measured on this machine in three steps"),
        ("steps", f"{steps:,}", reason),
        ("time", format_duration(seconds), f"{dry_run.seconds:.3f} s per step, without validation and saving"),
        ("epochs", f"{steps / epoch:.2f}", f"{epoch:,} steps each"),
    ]
    numbers: dict[str, float] = {
        "parameters": dry_run.parameters, "tokens_per_step": dry_run.tokens, "tokens_per_second": tokens_per_second,
        "seconds_per_step": dry_run.seconds, "steps": steps, "seconds": seconds, "epochs": steps / epoch,
    }  # fmt: skip
    verdict: tuple[str, bool] | None = None
    sums: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if sizes is not None:
        total = 2 * sizes.weight_bytes + sizes.optimizer_bytes + dry_run.activation_bytes
        state = {"weights": sizes.weight_bytes, "gradients": sizes.weight_bytes, "optimizer": sizes.optimizer_bytes}
        rows += [(name, format_bytes(count), "counted") for name, count in state.items()]
        rows.append(("activations", format_bytes(dry_run.activation_bytes), "measured in one forward pass"))
        rows.append(("memory", format_bytes(total), ""))
        numbers |= {**state, "activations": dry_run.activation_bytes, "memory": total}
        sums = (_state_formulas(sizes, state),)
        if (free := ram.available_ram()) is not None:
            fits = "fit" if total <= free else "do not fit"
            text = f"{format_bytes(total)} {fits} into the {format_bytes(free)} that this machine has free."
            verdict = text, total <= free
    notes = ("Nothing was saved. Other running programs slow down training as they slow down this measurement.",)
    title = f"Plan: {recipe.model_kind} {recipe.preset} on {recipe.data}"
    batches = f"batches of {recipe.batch_size} samples of up to {recipe.seq_len:,} tokens"
    summary = f"Seed {recipe.seed}, {batches}, {recipe.precision}."
    return PlanResult(title, summary, tuple(rows), numbers, sums, notes, verdict)


def _state_formulas(sizes: "ModelSizes", state: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
    n, muon, adam = sizes.parameters, sizes.muon_parameters, sizes.parameters - sizes.muon_parameters
    optimizer_state = f"4 · ({f'{muon:,} + ' if muon else ''}2 · {adam:,} + {sizes.adamw_tensors})"
    return "weights, gradients and optimizer, in float32", (
        f"weights = 4 bytes · {n:,} parameters = {format_bytes(state['weights'])}",
        f"gradients = the same = {format_bytes(state['gradients'])}",
        "optimizer = 4 bytes · (1 per parameter of Muon + 2 per parameter of Adam + 1 step count per tensor)",
        f"optimizer = {optimizer_state} = {format_bytes(state['optimizer'])}",
    )


def _calculated_plan(name: str, estimate: "TrainingEstimate") -> PlanResult:
    sizes, machine = estimate.sizes, estimate.hardware
    rows = [("parameters", f"{sizes.parameters:,}", "counted"),
            ("activations", format_bytes(estimate.activation_bytes), "on each accelerator")]  # fmt: skip
    numbers: dict[str, float] = {"parameters": sizes.parameters, "weights": sizes.weight_bytes,
                                        "gradients": sizes.weight_bytes, "optimizer": sizes.optimizer_bytes,
                                        "activations": estimate.activation_bytes}  # fmt: skip
    for way in ("ddp", "fsdp"):
        memory, step = estimate.bytes_per_device(way), estimate.step_seconds(way)
        fits = "fits" if memory <= machine.memory else f"does not fit into {format_bytes(machine.memory)}"
        rows += [
            (f"memory, {way.upper()}", format_bytes(memory), f"on each accelerator: {fits}"),
            (f"time per step, {way.upper()}", f"{step:.4g} s", "the longer of computation and communication"),
            (f"tokens per day, {way.upper()}", f"{estimate.tokens_per_day(way):.4g}", "on all accelerators together"),
        ]
        numbers |= {f"memory_{way}": memory, f"seconds_per_step_{way}": step,
                    f"tokens_per_day_{way}": estimate.tokens_per_day(way)}  # fmt: skip
    cache = format_bytes(estimate.kv_cache_bytes) if estimate.kv_cache_bytes else "none"
    rows.append(("KV cache", cache, f"16 bits, one sequence of {estimate.seq_len:,} tokens"))
    numbers["kv_cache"] = estimate.kv_cache_bytes
    summary = (
        f"Calculated: nothing was measured. {machine.accelerators} accelerators of {machine.flops:.3g} FLOP/s, "
        f"{format_bytes(machine.memory)} and {machine.bandwidth:.3g} bytes/s each; {estimate.batch_size} samples of "
        f"{estimate.seq_len:,} tokens on each."
    )
    note = (
        f"Real runs differ: {machine.mfu:.0%} utilization of the FLOP/s is assumed, and that communication overlaps "
        "with computation."
    )
    title, formulas = f"Calculated plan: {name}", _plan_formulas(estimate)
    return PlanResult(title, summary, tuple(rows), numbers, formulas, (note,))


def _plan_formulas(estimate: "TrainingEstimate") -> tuple[tuple[str, tuple[str, ...]], ...]:
    sizes, machine, n = estimate.sizes, estimate.hardware, estimate.hardware.accelerators
    held = {"weights": sizes.weight_bytes, "gradients": sizes.weight_bytes, "optimizer": sizes.optimizer_bytes}
    tokens, state = estimate.tokens_per_step, format_bytes(estimate.state_bytes)
    ddp, fsdp = (estimate.communication_seconds(way) for way in ("ddp", "fsdp"))
    looked_up = sizes.lookup_parameters  # these take no part in matrix products
    parameters = f"(parameters - {looked_up:,} n-gram embeddings)" if looked_up else "parameters"
    return (
        _state_formulas(sizes, held),
        ("activations, 16 bits, fused attention (34 bytes per token, layer and unit of d_model; logits)", (
            "activations = 34 · tokens · d_model · layers + (2 + 4) · tokens · vocabulary size",
            f"= 34 · {tokens:,} · {sizes.d_model:,} · {sizes.num_layers} + 6 · {tokens:,} · {sizes.vocab_size:,}",
            f"= {format_bytes(estimate.activation_bytes)}",
        )),
        ("memory on each accelerator", (
            f"DDP = weights + gradients + optimizer + activations = {format_bytes(estimate.bytes_per_device('ddp'))}",
            f"FSDP = {state} / {n} + one full block + activations = {format_bytes(estimate.bytes_per_device('fsdp'))}",
        )),
        ("time per step", (
            f"work = 6 · {parameters} + 6 · layers · d_model · context FLOP per token",
            f"computation = tokens · work / (FLOP/s · {machine.mfu:g}) = {estimate.compute_seconds:.4g} s",
            f"communication, DDP = 2 · ({n} - 1) / {n} · weights / bandwidth = {ddp:.4g} s",
            f"communication, FSDP = 3 · ({n} - 1) / {n} · weights / bandwidth = {fsdp:.4g} s",
            "tokens per day = accelerators · tokens · 86,400 s / max(computation, communication)",
        )),
        ("KV cache", (
            "cache = 2 (key and value) · layers · KV heads · d_head · 2 bytes · context",
            f"= {sizes.kv_per_token:,} · 2 · {estimate.seq_len:,} = {format_bytes(estimate.kv_cache_bytes)}",
        )),
    )  # fmt: skip
