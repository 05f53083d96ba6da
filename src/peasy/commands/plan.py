"""`plan`: estimate memory and time of a training run, from a few real steps or from formulas for another machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peasy.checkpoint import ram
from peasy.checkpoint.ram import format_bytes
from peasy.commands.load import choose_device
from peasy.commands.plan_measure import DryRun, TruncatedCorpus, dry_run
from peasy.commands.recipe_changes import open_training_data, recipe_changes, with_suggested_settings
from peasy.commands.result import Result
from peasy.datasets import Corpus
from peasy.errors import UsageError
from peasy.extras import require_extra
from peasy.views.document import Document
from peasy.views.plan import PlanFacts, plan_document
from peasy.views.run import format_duration

if TYPE_CHECKING:
    from peasy.training.estimate import Hardware, ModelSizes, TrainingEstimate
    from peasy.training.recipe import Recipe
    from peasy.training.setup import RunSetup

DataSource = str | Path | Sequence[str | Path] | Corpus
_DRY_RUN_CHARACTERS = 1_000_000
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
        formulas = {title: list(lines) for title, lines in self.facts.formulas}
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
    data: DataSource | None = None,
    *,
    preset: str = "small",
    minutes: float | None = None,
    steps: int | None = None,
    seed: int | None = None,
    device: str = "auto",
    lr: float | None = None,
    batch_size: int | None = None,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    accelerators: int | None = None,
    flops: str | float | None = None,
    memory: str | float | None = None,
    bandwidth: str | float | None = None,
    mfu: float = 0.4,
) -> PlanResult:
    """Estimate memory and time of a training run without training.

    With `data`, the speed is measured by a few real steps on this machine. With `accelerators`, `flops`, `memory` and
    `bandwidth` of each ("312T", "80GB", "300GB/s"), the plan is computed for another machine; `kind` may then also be
    a known model, such as gpt2, and `mfu` is the model FLOPs utilization. `lr`, `batch_size`, `config` and `settings`
    change the recipe as in `train`.

    >>> round(plan("gpt2", accelerators=8, flops="312T", memory="80GB", bandwidth="300GB/s").numbers["parameters"])
    124439808
    """
    require_extra("torch")
    from peasy.training.estimate import Hardware, parse_amount

    given = {"accelerators": accelerators, "flops": flops, "memory": memory, "bandwidth": bandwidth}
    changes = recipe_changes(settings, config=config, lr=lr, batch_size=batch_size)
    request = _PlanRequest(kind, preset, changes, {"minutes": minutes, "steps": steps, "seed": seed})
    if all(value is None for value in given.values()):
        if data is None:
            raise UsageError(
                "A plan for this machine needs data.",
                hint="For example: --data stories. For another machine: --accelerators --flops --memory --bandwidth.",
            )
        return request.measure(data, choose_device(device))
    if missing := [name for name, value in given.items() if value is None]:
        raise UsageError(f"A plan for another machine also needs {', '.join('--' + name for name in missing)}.")
    amounts = (parse_amount(flops or 0), parse_amount(memory or 0), parse_amount(bandwidth or 0))
    return request.calculate(Hardware(accelerators or 0, *amounts, mfu))


@dataclass(frozen=True)
class _PlanRequest:
    """Validated arguments of `plan`."""

    kind: str
    preset: str
    settings: dict[str, Any]
    budget: dict[str, Any]

    def measure(self, data: DataSource, device: str) -> PlanResult:
        """Plan for this machine by running a few real training steps."""
        from peasy.training.recipe import make_recipe
        from peasy.training.setup import resolve_setup

        data_name = data.name if isinstance(data, Corpus) else str(data)
        corpus = open_training_data(self.kind, data, self.settings.get("data_options", {}))
        settings = with_suggested_settings(self.kind, corpus, self.settings)
        recipe = make_recipe(self.kind, self.preset, settings, data=data_name, **self.budget)
        beginning = TruncatedCorpus(corpus, _DRY_RUN_CHARACTERS)
        setup = resolve_setup(recipe, beginning, None, device)
        measurements = dry_run(setup, beginning, device)
        return _measured_plan(setup, corpus, beginning, measurements)

    def calculate(self, machine: "Hardware") -> PlanResult:
        """Plan for another machine by formulas alone."""
        from peasy.models.build import build
        from peasy.training.estimate import ModelSizes, TrainingEstimate
        from peasy.training.optimizer import AdamWConfig

        config, recipe = self._config()
        context = getattr(config, "max_seq_len", None) or (recipe.seq_len if recipe else 1024)
        rows = recipe.batch_size if recipe else 8
        model = build(config, seed=None)
        sizes = ModelSizes.of(model, recipe.optimizer if recipe else AdamWConfig())
        name = f"{self.kind} {self.preset}" if recipe else self.kind
        return _calculated_plan(name, TrainingEstimate(sizes, machine, rows, context))

    def _config(self) -> "tuple[Any, Recipe | None]":
        from peasy.models.preset import preset, presets
        from peasy.training.recipe import MODEL_KINDS, make_recipe

        if self.kind not in MODEL_KINDS and self.kind in {known.name for known in presets()}:
            return preset(self.kind, **self.settings), None
        recipe = make_recipe(self.kind, self.preset, self.settings, **self.budget)
        overrides = {"vocab_size": recipe.tokenizer.vocab_size} if recipe.tokenizer.vocab_size else {}
        return preset(f"{self.kind}-{self.preset}", **overrides | dict(recipe.model)), recipe


def _measured_plan(setup: "RunSetup", corpus: Corpus, truncated: Corpus, dry_run: DryRun) -> PlanResult:
    recipe, sizes = setup.recipe, dry_run.sizes
    tokens_per_second = dry_run.tokens / dry_run.seconds
    fraction = truncated.cached_survey.sizes["train"].characters / max(
        corpus.cached_survey.sizes["train"].characters, 1
    )
    data_tokens = corpus.cached_survey.sizes["train"].characters * dry_run.tokens_per_character
    epoch = max(1, round(dry_run.samples / fraction / recipe.batch_size))
    steps, seconds = _steps_and_seconds(recipe, dry_run.seconds, epoch)
    rows = [
        ("parameters", f"{dry_run.parameters:,}", "counted"),
        ("tokens in the data", f"{data_tokens:,.0f}", f"from the first {min(fraction, 1):.0%} of it"),
        ("tokens per step", f"{dry_run.tokens:,}", "of real batches"),
        ("tokens per second", f"{tokens_per_second:,.0f}", "measured on this machine in three steps"),
        ("steps", f"{steps:,}", _steps_reason(recipe)),
        ("time", format_duration(seconds), f"{dry_run.seconds:.3f} s per step, without validation and saving"),
        ("epochs", f"{steps / epoch:.2f}", f"{epoch:,} steps each"),
    ]
    numbers: dict[str, float | None] = {
        "parameters": dry_run.parameters, "tokens_per_step": dry_run.tokens, "tokens_per_second": tokens_per_second,
        "seconds_per_step": dry_run.seconds, "steps": steps, "seconds": seconds, "epochs": steps / epoch,
    }  # fmt: skip
    verdict: tuple[str, bool] | None = None
    sums: tuple[tuple[str, tuple[str, ...]], ...] = ()
    if sizes is not None:
        total = 2 * sizes.weight_bytes + sizes.optimizer_bytes + dry_run.activation_bytes
        state = {"weights": sizes.weight_bytes, "gradients": sizes.weight_bytes, "optimizer": sizes.optimizer_bytes}
        rows += [(name, format_bytes(count), "counted") for name, count in state.items()]
        rows += [
            ("activations", format_bytes(dry_run.activation_bytes), "measured in one forward pass"),
            ("memory", format_bytes(total), ""),
        ]
        numbers |= {**state, "activations": dry_run.activation_bytes, "memory": total}
        sums, verdict = (
            (_state_formulas(sizes, state),),
            _fits_in_memory(total, ram.available_ram(), "this machine has free"),
        )
    notes = ("Nothing was saved. Other running programs slow down training as they slow down this measurement.",)
    title = f"Plan: {recipe.model_kind} {recipe.preset} on {recipe.data}"
    batches = f"batches of {recipe.batch_size} samples of up to {recipe.seq_len:,} tokens"
    summary = f"Seed {recipe.seed}, {batches}, {recipe.precision}."
    return PlanResult(PlanFacts(title, summary, tuple(rows), sums, notes, verdict), numbers)


def _steps_and_seconds(recipe: "Recipe", seconds: float, epoch_steps: int) -> tuple[int, float]:
    if recipe.steps is not None:
        return recipe.steps, recipe.steps * seconds
    if recipe.minutes is not None:
        return max(1, int(recipe.minutes * 60 / seconds)), recipe.minutes * 60
    return epoch_steps, epoch_steps * seconds


def _steps_reason(recipe: "Recipe") -> str:
    if recipe.steps is not None:
        return "as requested"
    return f"as many as fit into {recipe.minutes:g} minutes" if recipe.minutes is not None else "one epoch"


def _matmul_parameters(sizes: "ModelSizes") -> str:
    """Formula text of the parameters that take part in matrix products; n-gram embeddings are only looked up."""
    return f"(parameters - {sizes.lookup_parameters:,} n-gram embeddings)" if sizes.lookup_parameters else "parameters"


def _state_formulas(sizes: "ModelSizes", state: Mapping[str, int]) -> tuple[str, tuple[str, ...]]:
    n, muon, adam = sizes.parameters, sizes.muon_parameters, sizes.parameters - sizes.muon_parameters
    optimizer_state = f"4 · ({f'{muon:,} + ' if muon else ''}2 · {adam:,} + {sizes.adamw_tensors})"
    return "weights, gradients and optimizer, in float32", (
        f"weights = 4 bytes · {n:,} parameters = {format_bytes(state['weights'])}",
        f"gradients = the same = {format_bytes(state['gradients'])}",
        "optimizer = 4 bytes · (1 per parameter of Muon + 2 per parameter of Adam + 1 step count per tensor)",
        f"optimizer = {optimizer_state} = {format_bytes(state['optimizer'])}",
    )


def _fits_in_memory(needed: float, free: float | None, owner: str) -> tuple[str, bool] | None:
    if free is None:
        return None
    fits = needed <= free
    return f"{format_bytes(needed)} {'fit' if fits else 'do not fit'} into the {format_bytes(free)} that {owner}.", fits


def _calculated_plan(name: str, estimate: "TrainingEstimate") -> PlanResult:
    sizes, machine = estimate.sizes, estimate.hardware
    rows = [("parameters", f"{sizes.parameters:,}", "counted"),
            ("activations", format_bytes(estimate.activation_bytes), "on each accelerator")]  # fmt: skip
    numbers: dict[str, float | None] = {"parameters": sizes.parameters, "weights": sizes.weight_bytes,
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
    facts = PlanFacts(f"Calculated plan: {name}", summary, tuple(rows), _plan_formulas(estimate), (note,))
    return PlanResult(facts, numbers)


def _plan_formulas(estimate: "TrainingEstimate") -> tuple[tuple[str, tuple[str, ...]], ...]:
    sizes, machine, n = estimate.sizes, estimate.hardware, estimate.hardware.accelerators
    held = {"weights": sizes.weight_bytes, "gradients": sizes.weight_bytes, "optimizer": sizes.optimizer_bytes}
    tokens, state = estimate.tokens_per_step, format_bytes(estimate.state_bytes)
    ddp, fsdp = (estimate.communication_seconds(way) for way in ("ddp", "fsdp"))
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
            f"work = 6 · {_matmul_parameters(sizes)} + 6 · layers · d_model · context FLOP per token",
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
