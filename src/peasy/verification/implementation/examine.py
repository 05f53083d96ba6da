"""Examination of an attention implementation: find a call layout that works, identify its formula, run the checks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation import variant as sizes
from peasy.verification.implementation.call_binding import CallBinding, declared_mask_meaning, infer_binding
from peasy.verification.implementation.case import CallSpec, Case
from peasy.verification.implementation.checks import CHECKS, check_dependence
from peasy.verification.implementation.instantiate import (
    LinearMap,
    QKVProjections,
    infer_num_heads,
    instantiate_module,
    read_projections,
)
from peasy.verification.implementation.mistake import CATALOGUE, MISTAKES, Mistake, Observation, Report, find_variant
from peasy.verification.implementation.target import Arg, CallResult, Target
from peasy.verification.implementation.variant import (
    FLAT_LAYOUTS,
    LAYOUTS,
    MaskConvention,
    SeededInputs,
    TensorLayout,
    Variant,
    mask_conventions,
)
from peasy.verification.verdict import Diagnosis

_BASE_VARIANTS = [Variant(causal=causal, rope=rope) for rope in (None, "halves", "pairs") for causal in (None, 0)]
"""Conventions, not mistakes: bidirectional or causal, with or without rotary positions."""
_SQUARE_SPEC = CallSpec(sizes.NUM_QUERIES, sizes.NUM_QUERIES)
_NUM_SEEDS = 2
"""Number of seeded inputs that a variant must reproduce."""


def examine(target: Target, *, binding: CallBinding | None = None, seed: int = 0) -> Diagnosis:
    """Compare a function or module with the attention formula.

    >>> from peasy.verification.implementation.target import LocalTarget
    >>> def attention(q, k, v):
    ...     scores = q @ k.swapaxes(-1, -2)
    ...     weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    ...     return weights @ v
    >>> examine(LocalTarget(attention)).mistakes
    ('no scale',)
    """
    description = target.describe()
    name, kind = description.name, description.kind
    state: dict[str, np.ndarray] = {}
    if kind in ("class", "module"):
        description, state = instantiate_module(target, description, binding, seed)
    report = Report(description, binding or infer_binding(description))
    cases = list(_candidate_cases(target, report, state, SeededInputs(seed)))
    if not cases:
        report.notes.append("Its weights could not be identified by name, so only the dependence test was run.")
        widths = dict.fromkeys([sizes.D_MODEL, *(array.shape[-1] for array in state.values() if array.ndim > 1)])
        check_dependence(report, target, SeededInputs(seed), list(widths))
        return report.to_diagnosis(name, kind)
    working = _working_cases(cases, report)
    for count, (case, convention, observations) in product(range(3), working):  # the fewest mistakes over all cases
        bases = [base for base in _BASE_VARIANTS if case.projection is not None or base.rope is None]
        match = find_variant(observations, bases, MISTAKES, [count])
        if match is not None:
            _record_match(report, case, *match, observations[0])
            for check in CHECKS:
                check(report, case, convention, match[0])
            return report.to_diagnosis(name, kind)
    case, _, observations = working[0]
    report.explained = False
    report.conventions.append(case.layout.summary)
    report.difference = observations[0].first_difference(Variant())
    return report.to_diagnosis(name, kind)


def _candidate_cases(
    target: Target, report: Report, state: dict[str, np.ndarray], seeded: SeededInputs
) -> Iterator[Case]:
    binding, description = report.binding, report.description
    libraries = [description.library] if description.library else ["torch", "numpy"]
    for library in ["torch"] if description.kind == "module" else libraries:
        base = Case(target, binding, TensorLayout("bhtd"), seeded, library, fixed_values=_fixed_values(binding))
        if description.kind == "module":
            separate_inputs = binding.has_roles("query", "key", "value") or binding.has_roles("source")
            for projection in read_projections(state):
                if not separate_inputs and projection.key.weight.shape[0] != projection.d_in:
                    continue
                for num_heads, num_kv_heads in infer_num_heads(description, projection):
                    for axes in FLAT_LAYOUTS:
                        yield base.with_projection(projection, axes, num_heads, num_kv_heads)
        elif binding.has_roles("query", "key", "value") and not binding.has_roles("w_q"):
            for axes in FLAT_LAYOUTS if binding.has_roles("heads") else ():
                yield replace(base, layout=TensorLayout(axes, True))
            for axes in LAYOUTS:
                if "h" in axes or not binding.has_roles("heads"):
                    yield replace(base, layout=TensorLayout(axes))
        elif binding.has_roles("x") or binding.has_roles("w_q"):
            yield from _input_cases(base, seeded)
        else:
            raise InvalidInput(
                f"{description.name} does not look like attention: it takes neither q, k, v nor an input x.",
                hint='Give the call: --call "attention(q, k, v)"',
            )


def _input_cases(base: Case, seeded: SeededInputs) -> Iterator[Case]:
    """Yield the cases of a function of x: with projection matrices as arguments, or without projections."""
    heads, width = (sizes.NUM_HEADS, sizes.D_MODEL) if base.binding.has_roles("heads") else (1, sizes.D_HEAD)
    if base.binding.has_roles("w_q"):
        scale = 1.5 / np.sqrt(width)  # so that the softmax is neither uniform nor one-hot
        q, k, v, o = (LinearMap(seeded.array(name, width, width) * scale) for name in ("w_q", "w_k", "w_v", "w_o"))
        projection = QKVProjections(q, k, v, o if base.binding.has_roles("w_o") else None, "its arguments")
    else:
        identity = LinearMap(np.eye(width))
        projection = QKVProjections(identity, identity, identity, None, "none: queries, keys and values are the inputs")
    for transposed in (False, True) if base.binding.has_roles("w_q") else (False,):
        for axes in FLAT_LAYOUTS:
            yield replace(base.with_projection(projection, axes, heads, heads), transposed_weights=transposed)


def _fixed_values(binding: CallBinding) -> dict[str, Arg]:
    """Return values passed in every call: training=False, and required arguments that do not affect attention."""
    fixed: dict[str, Arg] = {"training": False} if binding.has_roles("training") else {}
    required = {"dropout": 0.0, "offset": 0, "length": sizes.MAX_SEQ_LEN, "cache": None, "past_key": None,
                "past_value": None, "flag": True, "weights": True, "scale": sizes.D_HEAD**-0.5}  # fmt: skip
    return fixed | {role: value for role, value in required.items() if binding.requires(role)}


_WorkingCase = tuple[Case, MaskConvention | None, list[Observation]]


def _working_cases(cases: Sequence[Case], report: Report) -> list[_WorkingCase]:
    """Return the cases in which the target returns a context, with observations; disable dropout if it is random."""
    working: list[_WorkingCase] = []
    failures: list[CallResult] = []
    for case in cases:
        case = replace(case, disable_dropout=bool(report.findings))
        for convention in _required_conventions(case, report):
            spec = case.with_full_mask(_SQUARE_SPEC, convention)
            first, second = case.run(spec), case.run(spec)
            if isinstance(first, CallResult) or isinstance(second, CallResult):
                failures += [first] if isinstance(first, CallResult) else []
                continue
            if not report.findings and not np.array_equal(first.actual, second.actual, equal_nan=True):
                report.add_mistakes(CATALOGUE.dropout)
                case = replace(case, disable_dropout=True)
            results = [replace(case, seeded=SeededInputs(case.seeded.seed + n)).run(spec) for n in range(_NUM_SEEDS)]
            observations = [result for result in results if isinstance(result, Observation)]
            if len(observations) == _NUM_SEEDS:
                working.append((case, convention, observations))
    if not working:
        faults = [failure.fault for failure in failures if failure.fault]
        reason = next((fault.summary() for fault in faults if fault.line), None)
        reason = reason or next((fault.summary() for fault in faults), "it returned no array of the expected shape")
        raise InvalidInput(
            f"{report.binding.summary()} did not work in any layout of its inputs: {reason}",
            hint=f'Give the call: --call "{report.binding.summary()}"',
        )
    return working


def _required_conventions(case: Case, report: Report) -> list[MaskConvention] | list[None]:
    if not report.binding.requires("mask"):
        return [None]
    declared = declared_mask_meaning(report.description, report.binding.parameter_names("mask"))
    return mask_conventions(case.layout, "mask", declared)


def _record_match(
    report: Report, case: Case, variant: Variant, mistakes: Sequence[Mistake], observation: Observation
) -> None:
    report.checks.append(f"{_NUM_SEEDS} seeded inputs")
    report.conventions.append(case.layout.summary)
    if observation.inputs.merged_output:
        report.conventions.append("returns concatenated heads: batch, time, width of all heads")
    if case.projection is not None:
        report.conventions.append(f"weights: {case.projection.description}")
        if case.num_heads > 1:
            shared = case.num_kv_heads != case.num_heads
            kv_heads = f", {case.num_kv_heads} key/value heads" if shared else ""
            report.conventions.append(f"{case.num_heads} heads{kv_heads}")
    if variant.causal is not None:
        report.conventions.append("always causal")
    if variant.rope is not None:
        report.conventions.append(f"rotary positions, by {variant.rope}")
    correct = Variant(causal=None if variant.causal is None else 0, rope=variant.rope)
    report.add_mistakes(*mistakes, difference=observation.first_difference(correct))
