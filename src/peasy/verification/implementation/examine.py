"""Examination of attention code: it is called, read from traces, and judged on several inputs and sizes."""

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation.arguments import (
    SIZES,
    Sizes,
    causal_flags,
    required_scale,
    required_widths,
    signature_of,
    source_of,
)
from peasy.verification.implementation.by_output import judge_by_output
from peasy.verification.implementation.call_text import CallFailure, call_not_found, failure
from peasy.verification.implementation.calls import attempts
from peasy.verification.implementation.catalogue import MISTAKES, finding
from peasy.verification.implementation.checks import (
    TILED,
    check_cache,
    check_causal_flag,
    check_groups,
    check_lengths,
    check_masked_rows,
    check_output_projection,
    rotary_is_relative,
)
from peasy.verification.implementation.comparison import judge_output
from peasy.verification.implementation.core import attention_products, find_cores
from peasy.verification.implementation.creation import is_module
from peasy.verification.implementation.expected import explain_difference, read_expected
from peasy.verification.implementation.expressions import expression_attempts
from peasy.verification.implementation.forms import Attempt
from peasy.verification.implementation.judge import judge
from peasy.verification.implementation.judgement import Context, Judgement
from peasy.verification.implementation.loading import attention_candidates, definitions
from peasy.verification.implementation.masks import (
    MaskTrial,
    declared_mask_meaning,
    is_weak,
    judge_pattern,
    judge_weak_mask,
    mask_place,
    mask_trials,
    repeating_place,
    weak_place,
)
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.reading import Reading, read_cores
from peasy.verification.implementation.scale import SCALES
from peasy.verification.implementation.trace import NotRepeatable, Trace, to_float
from peasy.verification.verdict import EQUAL, NOT_COMPARED, WRONG, Diagnosis

_MAX_ATTEMPTS, _MAX_GUESSED = 12, 3
"""Calls that are judged at most, if none of them can be compared; and with guessed settings."""

STRICT = False
"""Whether an error of the examination itself is raised, not reported as "not compared": for tests."""


@dataclass(eq=False)
class Examination:
    """State of one examination: the target, its file and namespace, and what was found."""

    target: Any
    name: str
    file: str = ""
    call: str | None = None
    namespace: dict[str, object] = field(default_factory=dict)
    seed: int = 0
    failures: list[CallFailure] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inverted: bool = False


def examine(target: object, name: str = "", *, file: str = "", call: str | None = None, seed: int = 0,
            namespace: dict[str, object] | None = None, expected: str | None = None, notes: list[str] | None = None,
            ) -> Diagnosis:  # fmt: skip
    """Examine a function, a class or an object; `call` is an expression with the names q, k, v, x, source and mask."""
    name = name or getattr(target, "__name__", type(target).__name__)
    if not callable(target) and not hasattr(target, "forward"):
        message = f"{name} is a {type(target).__name__}: it cannot be called."
        raise InvalidInput(message, hint="Give a function or a class.")
    scope = namespace if namespace is not None else dict(getattr(inspect.getmodule(target), "__dict__", {}))
    scope = {name.rpartition(".")[2]: target, **scope}
    given = None if expected is None else read_expected(expected)
    state = Examination(target, name, file or _file_of(target), call, scope, seed, notes=list(notes or ()))
    best: Diagnosis | None = None
    axes, mixed = 0, 0
    for number, attempt in enumerate(islice(_attempts(state, SIZES[0]), _MAX_ATTEMPTS)):
        if given is not None:
            _explain_expected(state, attempt, *given)
        found = _judge_attempt(state, attempt)
        if not state.call and (failed := _failed_with_more_heads(state, attempt)):
            found.not_understood(f"Only one head was compared; with more it fails: {failed}.")
        diagnosis = _diagnosis(state, attempt, found)
        # an axis by number, as in softmax(1), means another one without the batch; one head mixes nothing
        is_equal, is_smaller = diagnosis.verdict == EQUAL, found.axes < axes
        if (is_smaller and (is_equal or not found.axes)) or (is_equal and found.heads < mixed):
            continue
        axes, mixed = max(axes, found.axes), max(mixed, found.heads * found.mixed)
        if diagnosis.verdict != NOT_COMPARED:
            return _with_more_sizes(state, attempt, found)
        best = best or diagnosis
        if attempt.guessed and number >= _MAX_GUESSED:
            break
    if best is not None:
        return best
    others = list(attention_candidates(Path(state.file))) if state.file else []
    raise call_not_found(state.target, state.name, state.failures, state.notes, others)


def _attempts(state: Examination, sizes: Sizes) -> Any:
    if state.call:
        return expression_attempts(state.call, state.namespace, sizes, state.seed, state.failures, state.file)
    return attempts(state.target, sizes, state.seed, state.failures, state.file)


def _explain_expected(
    state: Examination, attempt: Attempt, expected: np.ndarray, inputs: dict[str, np.ndarray]
) -> None:
    """Note what turns the output of the call into the expected array; `inputs` replace the seeded ones."""
    unknown = sorted(set(inputs) - set(attempt.subject.inputs))
    if unknown:
        raise InvalidInput(
            f"The call has no inputs named {', '.join(unknown)}: it has {', '.join(attempt.subject.inputs)}."
        )
    given = {name: np.asarray(array, dtype=np.float32) for name, array in inputs.items()}
    subject = replace(attempt.subject, inputs={**attempt.subject.inputs, **given})
    trace = subject.trace()
    cores = find_cores(trace)
    if cores:
        reading = read_cores(subject, trace, cores[:1], state.seed)[0]
        if reading.attended:
            state.notes += explain_difference(subject, reading, expected)


def _judge_attempt(state: Examination, attempt: Attempt, seed: int = 0) -> Judgement:
    found = Judgement()
    subject = attempt.subject
    try:
        trace = subject.trace()
        _judge_dropout(trace, found)
        twice = (map(np.nan_to_num, subject.plain()) for _ in range(2))
        if not found.mistakes and not all(map(np.array_equal, *twice)):
            found.not_understood("Two calls with the same inputs give different numbers.")
            return found
        cores = find_cores(trace)
        if not cores:
            if not judge_by_output(attempt, found):
                found.not_understood(_what_was_seen(trace))
            return found
        context = _context(state, attempt)
        readings = read_cores(subject, trace, cores, state.seed + seed)
        by_output = Judgement()
        in_parts = any(reading.normaliser.startswith("unknown (exp") for reading in readings)  # of the keys
        if in_parts and judge_by_output(attempt, by_output):
            return by_output
        for reading in readings:
            judge(reading, context, found)
            if len(reading.attended) == 2 and attempt.layout is not None and attempt.layout.axes == "bt":
                found.not_understood("Tokens of different sequences attend to each other.")
            if reading.attended:
                found.axes = max(array.ndim for array in subject.inputs.values())
            if reading.attended and reading.masked_op is not None:
                _judge_masks(state, attempt, reading, found)
            if reading.attended:
                _judge_positions(subject, reading, found)
            if not found.unknown:
                judge_output(subject, reading, found, state.seed + seed, readings)
            if reading.attended and len(cores) == 1 and seed == 0:
                _more_calls(state, attempt, reading, context, found)
    except NotRepeatable:
        found.not_understood("It does other operations when its input changes.")
    except Exception as error:
        if _in_peasy(error) and STRICT:
            raise
        if judge_by_output(attempt, found):
            return found
        found.not_understood(f"{failure(error, attempt.subject.text, state.file).summary()}, when traced.")
    return found


def _failed_with_more_heads(state: Examination, attempt: Attempt) -> str:
    """Return how a call with several heads failed, if this one was made with one head instead; else ""."""
    heads = (p.name for p in signature_of(state.target) if role_of(p.name, True) == "heads")
    name = next(heads, "") if inspect.isclass(state.target) else ""
    if not name or not re.search(rf"\b{name}=1\b", attempt.subject.text):
        return ""
    return next((one.summary() for one in state.failures if re.search(rf"\b{name}=(?!1\b)\d", one.call)), "")


def _judge_positions(subject: Any, reading: Reading, found: Judgement) -> None:
    """Positions in queries and keys must be relative, as rotary ones are."""
    text = "positions in queries and keys (rotary)"
    if text in found.conventions and not rotary_is_relative(subject, reading):
        found.conventions.remove(text)
        found.not_understood("Queries and keys are multiplied by numbers that are not rotary positions.")


def _more_calls(state: Examination, attempt: Attempt, reading: Reading, context: Context, found: Judgement) -> None:
    """Call it with other lengths, grouped heads, its causal flag and its cache, where its signature offers them."""
    check_output_projection(attempt, reading, found)
    if found.unknown:
        return
    tried = [
        check_lengths(attempt, reading, context, found, state.seed),
        check_groups(attempt, reading, context, found, state.seed),
        check_causal_flag(attempt, context, found, state.seed),
        check_cache(attempt, reading, found, state.seed),
    ]
    state.checks += [text for text in tried if text]
    if not tried[-1] and {"cache", "past_key"} & {role_of(p.name) for p in attempt.parameters}:
        state.notes.append("Its cache was not tried: the form in which it is passed is not known here.")


def _in_peasy(error: BaseException) -> bool:
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "/verification/implementation/" in frames[-1].filename


def _judge_dropout(trace: Trace, found: Judgement) -> None:
    for kind, place in trace.events:
        if kind == "dropout":
            found.mistake("dropout left on", place)
        elif kind == "random":
            found.not_understood("It uses random numbers.")


def _what_was_seen(trace: Trace) -> str:
    products, softmaxes = len(attention_products(trace)), sum("softmax" in op.name for op in trace.ops)
    return (
        f"No attention was found: {len(trace.ops)} operations, {products} products of two inputs, {softmaxes} softmax. "
        "A product of queries and keys, weights, and a product with the values are expected."
    )


def _context(state: Examination, attempt: Attempt) -> Context:
    first = next(iter(attempt.subject.inputs.values()))
    roles = {name: role if role != "x" and role_of(name) else "" for name, role in attempt.roles.items()}  # no guesses
    sources = {name for name, role in attempt.roles.items() if role == "source"} - {"cond", "y", "ref"}  # conditions?
    if inspect.isclass(state.target) and any("cross" in p.name for p in signature_of(state.target)):
        roles = dict.fromkeys(roles, "")  # a switch decides whether keys and values are those of the arguments
    if "x" in attempt.roles.values() and sources:
        roles = {name: "query" if attempt.roles[name] == "x" else role for name, role in roles.items()}
    names = tuple(attempt.subject.weights)
    names_of = f"{state.name} {type(attempt.module).__name__ if is_module(attempt.module) else ''}"
    free = bool(re.search(r"T5|(?<![a-z])m?t5", names_of))
    unscaled = _why_unscaled(state)
    argument = any(role_of(p.name) == "scale" for p in attempt.parameters) or required_scale(state.target)
    return Context(int(first.shape[-1]), roles, _named_causal(state.name), free, not names, names, unscaled, argument)


def _why_unscaled(state: Examination) -> str:
    """Return why code may leave the scale to others: its caller scales, or the file has a scaled version; else ""."""
    if re.search("luong", state.name, re.I):
        return "its name says Luong's attention, which is published so"
    if re.search(r"cos(ine)?_?sim", f"{Path(state.file).stem} {state.name}", re.I):
        return "its name says cosine similarity, of queries and keys whose length its caller makes 1"
    scaled = re.search(r"\n *(.*\.weight(?:\.data)?(?: *[*/]=|\.(?:mul|div)_\().*)", source_of(state.target))
    if scaled:
        return f"it scales its own weights: {scaled[1]}"
    for node, source in definitions(Path(state.file)):
        if re.fullmatch(rf"scaled_?{re.escape(state.name)}", node.name, re.I):
            return f"{node.name} of the same file is the scaled one"
        calls = inspect.isfunction(state.target) and re.search(rf"(?<![\w.]){re.escape(state.name)}\(", source)
        for line in source.splitlines() if calls and node.name != state.name else ():
            if re.match(r"\s*q\w*\s*([*/]=|=\s*q\w*\s*[*/]).*(scale|sqrt|0\.5)", line):
                return f"its caller does: {line.strip()}. Examine the caller"
    return ""


def _named_causal(name: str) -> bool:
    return bool(re.search(r"(?<!non)(?<!non_)(?:causal|masked|autoregressive)", name.rpartition(".")[2].lower()))


def _judge_masks(state: Examination, attempt: Attempt, reading: Reading, found: Judgement) -> None:
    """Judge the mask of the call itself, and every mask argument."""
    _judge_bias(reading, found)
    named = attempt.sizes.causal or (_named_causal(state.name) and not causal_flags(state.target))
    named = named and not attempt.mask_names and not attempt.flag_names
    judge_pattern(attempt.subject, reading, named, found)
    for name, role in attempt.mask_names.items():
        _judge_mask_argument(state, attempt, reading, name, role, found)


def _judge_bias(reading: Reading, found: Judgement) -> None:
    """Judge what is added to the scores besides a mask: learned, linear in the distance, or unknown."""
    if reading.bias is None or reading.allowed is None:
        return
    bias = np.where(reading.allowed, reading.bias, 0.0)
    spread = float(np.ptp(reading.bias[reading.allowed])) if reading.allowed.any() else 0.0
    two = spread > 0 and len(np.unique(np.round(bias[reading.allowed] / spread, 5))) == 2
    if spread < 1e-6 and not (two and not reading.bias_learned):
        return
    if reading.bias_from_inputs:
        found.not_understood("A learned term that depends on the inputs is added to the scores (relative positions?).")
    elif reading.bias_learned:
        found.convention("a learned bias is added to the scores")
    elif two and np.array_equal(bias < bias.max(), reading.query_times[:, :, None] < reading.key_times[:, None, :]):
        found.mistake("mask value too small", weak_place(reading))
    elif _is_alibi(reading, bias):
        found.convention("ALiBi: a bias that falls with the distance")
    else:
        found.not_understood("Something unknown is added to the scores.")


def _is_alibi(reading: Reading, bias: np.ndarray) -> bool:
    distance = np.abs(reading.query_times[:, :, None] - reading.key_times[:, None, :])
    signed = -(reading.query_times[:, :, None] - reading.key_times[:, None, :])
    assert reading.allowed is not None
    for n in range(len(bias)):
        free = reading.allowed[n]
        for shape in (distance[n], signed[n], reading.key_times[n][None].repeat(len(distance[n]), 0)):
            slope = np.linalg.lstsq(np.stack([shape[free], np.ones(free.sum())], 1), bias[n][free], rcond=None)
            if np.allclose(np.stack([shape[free], np.ones(free.sum())], 1) @ slope[0], bias[n][free], atol=1e-4):
                break
        else:
            return False
    return True


def _judge_mask_argument(
    state: Examination, attempt: Attempt, reading: Reading, name: str, role: str, found: Judgement
) -> None:
    if re.search(r"context|memory|encoder|cross|src|kv", name) and "source" not in attempt.roles.values():
        return  # the mask of another input, which this call does not have
    trials = []
    for trial in mask_trials(attempt.subject, reading, name, role, state.seed):
        trials.append(trial)
        if trial.obeyed:
            break
    if not trials:
        state.notes.append(f'No known form of a mask was accepted as "{name}".')
        return
    trial = next((each for each in trials if each.obeyed), None) or next((t for t in trials if t.changed), trials[0])
    if trial.obeyed:
        label = "mask" if role == "mask" else "padding"
        state.checks.append("a mask" if role == "mask" else "a padding mask")
        replaces = "; it takes the place of the mask of the call without it" if trial.replaces else ""
        found.convention(f"{label}: {trial.convention.summary}{replaces}")
        check_masked_rows(attempt.subject, name, trial.convention, trial.mask, found)
        declared = declared_mask_meaning(state.target, state.file, name, state.namespace)
        softmax = not {"no softmax", "sum instead of softmax"} & {*found.mistakes}  # else masked weights are not 0
        if softmax and declared is not None and trial.convention.true_attends is (not declared):
            state.inverted = True
    else:
        trial = next((each for each in trials if each.other_sequence), trial)
    before = dict(attempt.subject.constants)
    attempt.subject.constants.update(trial.constants)
    try:
        _judge_masked_call(state, attempt, trial, found)
    finally:
        attempt.subject.constants.clear()
        attempt.subject.constants.update(before)


def _judge_masked_call(state: Examination, attempt: Attempt, trial: MaskTrial, found: Judgement) -> None:
    subject = attempt.subject
    trace = subject.trace()
    reading = read_cores(subject, trace, find_cores(trace)[:1], state.seed)[0]
    inner = Judgement()
    judge(reading, _context(state, attempt), inner)
    before = set(found.mistakes)
    found.take(inner)
    if "t" not in trial.convention.shape:
        found.unknown += [text for text in inner.unknown if text not in found.unknown]
    if state.inverted:
        found.mistake("mask inverted", mask_place(reading))
        state.inverted = False
    if trial.obeyed or set(inner.mistakes) - before:
        return
    if trial.other_sequence:
        found.mistake("mask of another sequence", repeating_place(reading))
    elif reading.replaced is not None and reading.replaced.any():
        judge_weak_mask(reading, found)
    elif is_weak(reading, trial):
        found.mistake("mask value too small", weak_place(reading))
    elif not trial.changed and (inner.unknown or _waits_for_another_argument(attempt, trial, trace)):
        state.notes.append(f"{next(iter(trial.constants))} has no effect with the other arguments as they are.")
    elif not trial.changed:
        found.mistake("mask ignored", None)
    elif judge_pattern(subject, reading, False, Judgement()) == "causal":
        found.convention("a mask argument, whatever it holds, makes it causal")
    else:
        found.not_understood("The effect of its mask argument is not known here.")


def _waits_for_another_argument(attempt: Attempt, trial: MaskTrial, trace: Trace) -> bool:
    """Return whether the code names a mask but did not use it in this call: it may need another argument, too."""
    (name, mask), code = next(iter(trial.constants.items())), attempt.module
    nodes = list(ast.walk(ast.parse(textwrap.dedent(source_of(code.forward if is_module(code) else code)))))
    asked = {
        id(node.left) for node in nodes if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot)
    }
    uses = any(isinstance(node, ast.Name) and node.id == name and id(node) not in asked for node in nodes)
    numbers = to_float(mask)
    return uses and not any(
        tuple(value.shape) == numbers.shape and np.array_equal(to_float(value), numbers)
        for op in trace.ops for value in op.values
    )  # fmt: skip


def _with_more_sizes(state: Examination, attempt: Attempt, found: Judgement) -> Diagnosis:
    """Repeat the judgement with other numbers and other sizes; all must agree."""
    grouped = [replace(SIZES[0], grouped=True)] if _has_groups(state.target) else []
    flags = causal_flags(state.target)
    causal = [replace(SIZES[0], causal=True)] if flags and not state.call else []
    narrow = [replace(SIZES[0], narrow=True)] if len(required_widths(state.target)) > 1 and not state.call else []
    for seed, sizes in enumerate((*SIZES, *grouped, *causal, *narrow), 1):
        again = Examination(state.target, state.name, state.file, state.call, state.namespace, state.seed + seed)
        unknown: list[str] = []
        for other in islice(_attempts(again, sizes), _MAX_ATTEMPTS):
            more = _judge_attempt(again, other, seed)
            if not state.call and more.scale == found.scale != 1 and more.d_key != found.d_key:
                found.not_understood(f"The scores are multiplied by {found.scale:.4g}, whatever the sizes are.")
                for judged in (found, more):
                    judged.mistakes = {name: at for name, at in judged.mistakes.items() if name not in SCALES}
            if sizes.causal:
                _take_causal(state, flags[0], more, found)
                break
            if sizes.narrow:  # a scale by the wrong one of two widths is right where both are equal
                found.mistakes |= {name: place for name, place in more.mistakes.items() if name in SCALES}
                break
            if more.unknown and not more.mistakes:
                unknown += more.unknown
                continue
            if "kv heads tiled" in more.mistakes and _groups_are_optional(state.target):
                found.convention(TILED)
                del more.mistakes["kv heads tiled"]
            if SCALES & {*found.mistakes}:  # the numbers of the first sizes are all different
                more.mistakes = {name: place for name, place in more.mistakes.items() if name not in SCALES}
            found.take(more)
            break
        else:
            found.unknown += [text for text in unknown if text not in found.unknown]
    _judge_without_fused_kernel(state, attempt, found)
    return _diagnosis(state, attempt, found)


def _take_causal(state: Examination, flag: str, more: Judgement, found: Judgement) -> None:
    """Add what was found with a constructor's causal flag."""
    if more.unknown and not more.mistakes:
        state.notes.append(f"With {flag}=True it was not compared: {more.unknown[0]}")
        return
    found.take(more)
    state.checks.append("the causal flag")
    if any("causal" in text for text in more.conventions):
        found.convention(f"{flag}=True is causal")


def _judge_without_fused_kernel(state: Examination, attempt: Attempt, found: Judgement) -> None:
    """Judge the branch that does without the fused kernel, where a switch of the module chooses between them."""
    owners = (attempt.module, *type(attempt.module).__mro__) if is_module(attempt.module) else ()
    switches = [(owner, name) for owner in owners for name, value in vars(owner).items()
                if value is True and re.search("flash|sdpa|fused", name)]  # fmt: skip
    for owner, name in switches[:1]:
        setattr(owner, name, False)
        more = _judge_attempt(state, replace(attempt, mask_names={}), 1)
        setattr(owner, name, True)
        found.take(more)
        if more.compared and not more.unknown:
            state.checks.append(f"{name} = False")


def _has_groups(target: object) -> bool:
    """Return whether a class may have fewer key heads than query heads: by a parameter or by its configuration."""
    roles = {role_of(p.name, True) for p in signature_of(target)} if inspect.isclass(target) else set()
    return bool(roles & {"key_heads", "config"})


def _groups_are_optional(target: Any) -> bool:
    """Return whether fewer key heads are an option of a class: then any order of them fits its own weights."""
    return any(role_of(p.name, True) == "key_heads" and p.default is None for p in signature_of(target))


def _diagnosis(state: Examination, attempt: Attempt, found: Judgement) -> Diagnosis:
    if attempt.invented and not found.mistakes:
        text = f"{attempt.invented} got a module that changes nothing; yours may do more."
        found.not_understood(f'{text} Give it: --call "{attempt.subject.text}"')
    # with sizes that the project chose, numbers can be equal by chance: a mistake counts if all else is understood
    if found.mistakes and (attempt.guessed or (attempt.layout is None and found.unknown)):
        chosen = "guessed settings" if attempt.guessed else "these sizes"
        call = attempt.subject.text.partition(" as in ")[0]
        found.not_understood(
            f"{', '.join(found.mistakes)} was found, but with {chosen}; with others it may be right. "
            f'Give yours: --call "{call}"'
        )
        found.mistakes.clear()
    verdict = WRONG if found.mistakes else NOT_COMPARED if found.unknown or not found.compared else EQUAL
    findings = [finding(name, found.mistakes[name], state.file) for name in MISTAKES if name in found.mistakes]
    findings += [finding(name, place, state.file) for name, place in found.cautions.items()]
    kind = "class" if inspect.isclass(state.target) else "module" if is_module(state.target) else "function"
    return Diagnosis(
        state.name, kind, attempt.subject.text, verdict, tuple(found.conventions), tuple(findings),
        tuple(dict.fromkeys(state.checks)), tuple(dict.fromkeys(found.unknown)), found.compared, found.difference,
        tuple(state.notes),
    )  # fmt: skip


def _file_of(target: object) -> str:
    code = target if inspect.isclass(target) or inspect.isfunction(target) else type(target)
    try:
        return inspect.getsourcefile(code) or ""
    except TypeError:
        return ""
