"""Calls to try: with arguments guessed by name, taken from examples of the project, or proposed by errors."""

import contextlib
import dataclasses
import functools
import inspect
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from peasy.verification.implementation.arguments import (
    ROTARY_ROLES,
    ConfigGuess,
    Sizes,
    constructor_attempts,
    seeded_array,
    signature_of,
)
from peasy.verification.implementation.call_text import (
    CallFailure,
    array_name,
    call_method,
    call_of,
    created_text,
    failure,
    short_text,
    shown_text,
)
from peasy.verification.implementation.captured import CapturedCall, captured_calls, is_array
from peasy.verification.implementation.core import Array
from peasy.verification.implementation.creation import fill_parameters, instantiate, is_module
from peasy.verification.implementation.examples import example_calls
from peasy.verification.implementation.forms import (
    ARRAY_ROLES,
    Attempt,
    Form,
    forms,
    required_value,
    roles_of,
    subject_of,
    unpacked,
    widths_of,
)
from peasy.verification.implementation.layouts import Layout
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repairs import repaired_calls, start_arguments
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import Op


def attempts(target: Any, sizes: Sizes, seed: int, failures: list[CallFailure], file: str) -> Iterator[Attempt]:
    """Yield ways to call a target that run, most likely first; `failures` collects what was tried in vain."""
    with _sizes_as_globals(target, sizes):
        name = getattr(target, "__name__", type(target).__name__)
        if inspect.isclass(target) and hasattr(target, "save_for_backward"):
            name, target = f"{name}.apply", _applied(target)
        worked = False
        for attempt in _guessed_attempts(target, name, sizes, seed, failures, file):
            worked = True
            yield attempt
        if (
            not worked
            and hasattr(target, "__name__")
            and not any("is not installed" in one.error for one in failures[-1:])
        ):
            kept = _repaired_calls(target, sizes), captured_calls(target, sizes, file, _model_calls)
            for calls in (example_calls(target, file), *kept):
                yield from _kept_attempts(calls, target, sizes, seed, failures, file)


def _guessed_attempts(
    target: Any, name: str, sizes: Sizes, seed: int, failures: list[CallFailure], file: str
) -> Iterator[Attempt]:
    if not inspect.isclass(target):
        for thorough in (False, True):
            yield from _call_attempts(target, name, {}, {}, sizes, seed, failures, file, thorough)
        return
    worked, end = False, time.process_time() + _MAX_SECONDS
    # groups of channels may need more heads, and fused kernels widths that are a multiple of 8
    both = sizes, dataclasses.replace(sizes, heads=8, d_head=2 * sizes.d_head)
    for each, thorough in itertools.product(both, (False, True)):
        before = len(failures)
        for arguments in _unique(constructor_attempts(target, each)):
            try:
                made, ops, buffers = instantiate(target, arguments, seed)
            except (Exception, SystemExit) as error:
                failures.append(failure(error, f"{created_text(target, arguments)}{_forward_text(target)}", file))
                continue
            text = created_text(target, arguments)
            for attempt in _call_attempts(made, text, ops, buffers, each, seed, failures, file, thorough):
                worked = True
                attempt.guessed = any(isinstance(v, ConfigGuess) and v.guesses for v in arguments.values())
                yield attempt
            if (len(failures) > before + _MAX_FAILURES or time.process_time() > end) and not worked:
                break
        if (worked and thorough) or (time.process_time() > end and not worked):
            return


def _repaired_calls(target: Any, sizes: Sizes) -> Iterator[CapturedCall]:
    """Yield the calls that a search finds, from the most likely one and what its errors propose."""
    function = call_method(target) if inspect.isclass(target) else target
    form = Form(Layout("bt", sizes.d_model), sizes)
    roles = roles_of(signature_of(function))
    start = start_arguments(function, roles, sizes, lambda name, role: required_value(name, role, form))
    created = next(constructor_attempts(target, sizes)) if inspect.isclass(target) else {}
    objects: dict[str, Any] = {}

    def call(own: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
        key = repr(own)
        if inspect.isclass(target) and key not in objects:
            objects.clear()
            objects[key] = instantiate(target, own, 0)[0]
        return call_of(objects.get(key, target))(**arguments)

    return repaired_calls(target, start, created, sizes, call)


def _kept_attempts(
    calls: Iterator[CapturedCall], target: Any, sizes: Sizes, seed: int, failures: list[CallFailure], file: str
) -> Iterator[Attempt]:
    """Yield calls that are kept with their arguments, with other numbers in their arrays."""
    for call in calls:
        function = target if not inspect.isclass(target) else call_method(target)
        parameters = [p for p in signature_of(function) if p.name in call.arguments]
        roles = roles_of([p.replace(default=p.empty) for p in parameters])
        arrays = {n: v for n, v in call.arguments.items() if roles.get(n) in ARRAY_ROLES and is_array(v)}
        inputs = {n: seeded_array(n, tuple(v.shape), seed) for n, v in arrays.items()}
        if not inputs:
            continue
        constants = {n: v for n, v in call.arguments.items() if n not in inputs}
        library = "numpy" if any(isinstance(v, np.ndarray) for v in arrays.values()) else "torch"
        made, ops, buffers, text = target, dict[int, list[Op]](), dict[str, Any](), str(target.__name__)
        try:
            if inspect.isclass(target):
                made, ops, buffers = instantiate(target, call.created, seed)
                text = created_text(target, call.created)
            shown = {n: array_name(roles[n]) for n in inputs} | {n: short_text(v) for n, v in constants.items()}
            text = f"{text}({shown_text(shown)})" + (f" as in {call.caller}" if call.caller else "")
            run = functools.partial(_call_by_name, call_of(made))
            subject = RepeatedCall(run, inputs, library, {}, buffers, ops, constants, text, made)
            _filled(subject, made, seed)
        except Exception as error:
            failures.append(failure(error, text, file))
            continue
        masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in inputs}
        yield Attempt(subject, {n: roles[n] for n in inputs}, masks, [], made, parameters, sizes, None, call.guessed)


def _filled(subject: RepeatedCall, made: Any, seed: int) -> list[Array]:
    """Fill the parameters of a module, after a first call that creates lazy ones, and return the outputs."""
    outputs = subject.plain()
    if not is_module(made):
        return outputs
    fill_parameters(made, seed)
    subject.parameters |= dict(made.named_parameters())
    return subject.plain()


def _call_by_name(function: Any, values: Mapping[str, Any]) -> Any:
    return function(**values)


def _model_calls(made: Any, sizes: Sizes) -> Iterator[Callable[[], Any]]:
    """Yield calls of a model or layer: with token ids, pictures, or arrays of tokens."""
    import torch

    parameters = signature_of(call_of(made))
    roles = roles_of(parameters)
    required = [p.name for p in parameters if p.default is p.empty] or [p.name for p in parameters[:1]]
    own = dict(made.named_parameters()) if is_module(made) else {}
    batch, time, side = sizes.batch, sizes.time, 8 * sizes.side
    ids = torch.arange(batch * time).reshape(batch, time) % 7 + 1
    kinds = [torch.ones(batch, time, width) for width in widths_of(own, sizes)[:3]]
    kinds = [ids, *kinds, torch.ones(batch, sizes.d_model), ids[:, 0], torch.ones(batch, 3, side, side)]
    form = Form(Layout("bt", sizes.d_model), sizes)
    guessed = ("", *ARRAY_ROLES, *ROTARY_ROLES)  # rotary tables come from the model, or it is the wrong one
    unknown = [n for n in required if n == required[0] or roles[n] in ("", *ARRAY_ROLES)]
    known = {n: required_value(n, roles[n], form) for n in required if roles[n] not in guessed and n not in unknown}
    for values in itertools.product(kinds, repeat=min(len(unknown), 3)):
        given = dict(zip(unknown, values, strict=False))
        yield functools.partial(made, **{**dict.fromkeys(required), **known, **given})


def _applied(cls: Any) -> Callable[..., Any]:
    """Return the function of a `torch.autograd.Function`: its forward pass, without the context."""
    parameters = signature_of(cls.forward)[1:]

    @functools.wraps(cls.forward)
    def apply(**given: Any) -> Any:
        return cls.apply(*(given[p.name] for p in parameters if p.name in given))

    apply.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return apply


_MAX_FAILURES, _MAX_MISSING, _MAX_SECONDS = 1500, 3, 4.0
"""Failed calls of one size, calls of one object that lack a package, and CPU seconds, after which the search ends."""


@contextlib.contextmanager
def _sizes_as_globals(target: Any, sizes: Sizes) -> Iterator[None]:
    """Give numbers that a script keeps in global names of sizes (d_k, n_heads) the sizes of the call."""
    members = vars(target).values() if inspect.isclass(target) else [target]
    functions = [member for member in members if inspect.isfunction(member)]
    scope = functions[0].__globals__ if functions else {}
    before = {
        name: value for name, value in scope.items()
        if type(value) is int and role_of(name, True) in ("d_model", "heads", "d_head") and len(name) > 1
    }  # fmt: skip
    scope.update({name: sizes.constructor_value(role_of(name, True)) for name in before})
    try:
        yield
    finally:
        scope.update(before)


def _forward_text(cls: type) -> str:
    """Return the arguments of an object's call, for a class that could not be created."""
    function = call_method(cls)
    parameters = [] if function is None else signature_of(function)
    roles = roles_of(parameters)
    return f"({shown_text({p.name: array_name(roles[p.name]) for p in parameters if p.default is p.empty})})"


def _unique(items: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    for item in items:
        key = repr(sorted((k, short_text(v), getattr(v, "_guess", None)) for k, v in item.items()))
        if key not in seen:
            seen.add(key)
            yield item


def _call_attempts(
    made: Any, text: str, ops: dict[int, list[Op]], buffers: dict[str, Any], sizes: Sizes, seed: int,
    failures: list[CallFailure], file: str, thorough: bool,
) -> Iterator[Attempt]:  # fmt: skip
    function = call_of(made)
    parameters, packed = unpacked(function, signature_of(function))
    roles = roles_of(parameters)
    worked, before = False, len(failures)
    for form in forms(made, function, parameters, roles, sizes, buffers):
        if thorough == (form.mask is None and not form.unknown):
            continue  # all objects are called without masks and guessed arrays before one is called with them
        missing = sum("is not installed" in one.error for one in failures[before:])
        if not worked and (missing == _MAX_MISSING or len(failures) > before + _MAX_FAILURES):
            return
        subject = subject_of(made, function, text, parameters, roles, form, seed, packed)
        if subject is None or (worked and (form.layout.one_query or form.unknown)):
            continue  # guesses only where nothing better runs
        subject.buffer_ops, subject.buffers = ops, buffers
        try:
            outputs = _filled(subject, made, seed)
            if form.mask is not None and not all(np.isfinite(array).all() for array in outputs):
                raise ValueError("its output is not finite: this mask hides everything")
        except Exception as error:
            failures.append(failure(error, subject.text, file))
            continue
        worked = True
        masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in subject.inputs}
        flags = [n for n, r in roles.items() if r == "causal"]
        input_roles = {n: roles.get(n, "") for n in subject.inputs}
        yield Attempt(subject, input_roles, masks, flags, made, parameters, form.sizes, form.layout)
