"""Calls to try: with arguments guessed by name, taken from examples of the project, or proposed by errors."""

import builtins
import contextlib
import dataclasses
import functools
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from peasy.verification.implementation.arguments import (
    ROTARY_ROLES,
    ConfigGuess,
    Sizes,
    constructor_attempts,
    roles_of,
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
from peasy.verification.implementation.captured import CapturedCall, captured_calls, is_array, smaller_calls
from peasy.verification.implementation.creation import instantiate, is_module
from peasy.verification.implementation.examples import example_calls
from peasy.verification.implementation.forms import (
    ARRAY_ROLES,
    Arguments,
    Attempt,
    Form,
    arguments_of,
    array_class_of,
    forms,
    required_value,
    run_filled,
    subject_of,
    unpacked,
    widths_of,
)
from peasy.verification.implementation.layouts import Layout
from peasy.verification.implementation.loading import global_names
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.repairs import repaired_calls
from peasy.verification.implementation.repeated_call import RepeatedCall
from peasy.verification.implementation.trace import Op

_MAX_FAILURES, _MAX_MISSING, _MAX_CREATED = 1500, 3, 300
"""Failed calls of one size, calls of one object that lack a package, and objects, after which the search ends."""
_NOT_GUESSED: weakref.WeakSet[Any] = weakref.WeakSet()
"""Code that runs, but by no guessed call: with other sizes and numbers the search for one is not repeated."""


def attempts(target: object, sizes: Sizes, seed: int, failures: list[CallFailure], file: str) -> Iterator[Attempt]:
    """Yield ways to call a target that run, most likely first; `failures` collects what was tried in vain."""
    search = _Search(target, sizes, seed, failures, file)
    with _sizes_as_globals(target, sizes, file):
        yield from search.guessed()
        missing = any("is not installed" in one.error for one in failures[-1:])
        if search.worked or missing or sizes.narrow or not hasattr(target, "__name__"):
            return
        yield from search.kept(example_calls(target, file))
        if search.worked:
            return
        yield from search.kept(repaired_calls(target, sizes, failures, file))
        yield from search.kept(captured_calls(target, sizes, file, _model_calls))


@dataclass(eq=False)
class _Search:
    """Search for calls of one target: objects of it that could be created, and calls of each that run."""

    target: Any
    sizes: Sizes
    seed: int
    failures: list[CallFailure]
    file: str
    worked: bool = False

    def guessed(self) -> Iterator[Attempt]:
        """Yield calls whose arguments are guessed by name: without masks and guessed arrays first, then with them."""
        target, sizes = self.target, self.sizes
        name = getattr(target, "__name__", type(target).__name__)
        if inspect.isclass(target) and hasattr(target, "save_for_backward"):
            name, target = f"{name}.apply", _applied(target)
        if hasattr(target, "__name__") and target in _NOT_GUESSED:
            return
        if not inspect.isclass(target):
            for thorough in (False, True):
                yield from self._calls_of(_Created(target, name), sizes, thorough)
            return
        # groups of channels may need more heads, and fused kernels widths that are a multiple of 8
        both, created = (sizes, dataclasses.replace(sizes, heads=8, d_head=2 * sizes.d_head)), 0
        for each, thorough in itertools.product(both, (False, True)):
            before = len(self.failures)
            seen = set[str]()
            for arguments in constructor_attempts(target, each):
                key = repr(sorted((k, short_text(v), getattr(v, "_guess", None)) for k, v in arguments.items()))
                if key in seen:
                    continue
                seen.add(key)
                created += 1
                if made := self._create(arguments):
                    yield from self._calls_of(made, each, thorough)
                if (len(self.failures) > before + _MAX_FAILURES or created > _MAX_CREATED) and not self.worked:
                    break
            if self.worked and thorough:
                return

    def kept(self, calls: Iterator[CapturedCall]) -> Iterator[Attempt]:
        """Yield calls that are kept with their arguments, with other numbers in their arrays."""
        for call in calls:
            function = call_method(self.target) if inspect.isclass(self.target) else self.target
            parameters = [p for p in signature_of(function) if p.name in call.arguments]
            roles = roles_of([p.replace(default=p.empty) for p in parameters])
            arrays = {n: v for n, v in call.arguments.items() if roles.get(n) in ARRAY_ROLES and is_array(v)}
            created: Any = None
            made: _Created | None = _Created(self.target)
            for each in smaller_calls(call, arrays) if arrays else ():
                if inspect.isclass(self.target) and each.created is not created:
                    created, made = each.created, self._create(each.created)
                if made is None:
                    continue
                inputs = {n: seeded_array(n, tuple(each.arguments[n].shape), self.seed) for n in arrays}
                library = "numpy" if any(isinstance(v, np.ndarray) for v in arrays.values()) else "torch"
                given = Arguments(inputs, {n: v for n, v in each.arguments.items() if n not in inputs}, {}, library)
                if subject := self._run(made, call_of(made.value), parameters, roles, given, call.caller):
                    _NOT_GUESSED.add(self.target)
                    self.worked = True
                    masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in inputs}
                    used = {n: roles[n] for n in inputs}
                    yield Attempt(
                        subject, used, masks, [], made.value, parameters, self.sizes, None, call.guessed, call.invented
                    )
                    break

    def _create(self, arguments: Mapping[str, object]) -> "_Created | None":
        """Return an object of the target, None if its constructor raises."""
        try:
            value, ops, buffers = instantiate(self.target, arguments, self.seed)
        except (Exception, SystemExit) as error:
            text = f"{created_text(self.target, arguments)}{_forward_text(self.target)}"
            self.failures.append(failure(error, text, self.file))
            return None
        text = created_text(self.target, arguments)  # only now: creation guesses settings
        settings = [v for v in arguments.values() if isinstance(v, ConfigGuess)]
        return _Created(value, text, ops, buffers, settings)

    def _calls_of(self, made: "_Created", sizes: Sizes, thorough: bool) -> Iterator[Attempt]:
        """Yield the calls of one object or function that run."""
        function = call_of(made.value)
        parameters, packed = unpacked(function, signature_of(function))
        roles = roles_of(parameters)
        worked, missing, before = False, 0, len(self.failures)
        for form in forms(made.value, function, parameters, roles, sizes, made.buffers):
            if thorough == (form.mask is None and not form.unknown):
                continue  # all objects are called without masks and guessed arrays before one is called with them
            if not worked and (missing == _MAX_MISSING or len(self.failures) > before + _MAX_FAILURES):
                return
            given = arguments_of(function, parameters, roles, form, self.seed, packed)
            if not given.inputs or (worked and (form.layout.one_query or form.unknown)):
                continue  # guesses only where nothing better runs
            subject = self._run(made, function, parameters, roles, given, finite=form.mask is not None)
            if subject is None:
                missing += "is not installed" in self.failures[-1].error
                continue
            worked = self.worked = True
            masks = {n: r for n, r in roles.items() if r in ("mask", "padding") and n not in subject.inputs}
            flags = [n for n, r in roles.items() if r == "causal"]
            used = {n: roles.get(n, "") for n in subject.inputs}
            yield Attempt(subject, used, masks, flags, made.value, parameters, form.sizes, form.layout, made.guessed)

    def _run(
        self, made: "_Created", function: object, parameters: list[inspect.Parameter], roles: dict[str, str],
        given: Arguments, caller: str = "", finite: bool = False,
    ) -> RepeatedCall | None:  # fmt: skip
        """Return a call after it ran, with its parameters filled; None if it raises."""
        text, failed = made.text or self.target.__name__, list[CallFailure]()
        for array_class in dict.fromkeys([None, array_class_of(function) if given.library == "numpy" else None]):
            subject = subject_of(made.value, function, text, parameters, roles, given, array_class)
            subject.text += f" as in {caller}" if caller else ""
            subject.buffer_ops, subject.buffers = made.ops, made.buffers
            failed = run_filled(subject, [made.value], self.seed, self.file, finite)
            if not failed:
                return subject
        self.failures += failed
        return None


@dataclass(frozen=True)
class _Created:
    """An object to call, or the function itself: how it was created, its buffers, and what made them."""

    value: Any
    text: str = ""
    ops: dict[int, list[Op]] = field(default_factory=dict)
    buffers: dict[str, Any] = field(default_factory=dict)
    settings: list[ConfigGuess] = field(default_factory=list)

    @property
    def guessed(self) -> bool:
        """Whether settings are guessed whose names are not known, until now: a call may ask for more of them."""
        return any(each.guesses for each in self.settings)


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


@contextlib.contextmanager
def _sizes_as_globals(target: Any, sizes: Sizes, file: str) -> Iterator[None]:
    """Give global names of sizes (d_k, n_heads) the sizes of the call: numbers of a script, and what is not defined."""
    members = vars(target).values() if inspect.isclass(target) else [target]
    functions = [member for member in members if inspect.isfunction(member)]
    scope = functions[0].__globals__ if functions else {}
    wanted = ("d_model", "heads", "d_head")
    names = [n for n, v in scope.items() if type(v) is int and role_of(n, True) in wanted and len(n) > 1]
    given = {name: sizes.constructor_value(role_of(name, True)) for name in names}
    absent = global_names(Path(file)) - {*scope, *vars(builtins)} if functions else set()
    given |= {name: sizes.size_of(name) for name in absent if sizes.size_of(name) is not None}
    before = {name: scope[name] for name in given if name in scope}
    scope.update(given)
    try:
        yield
    finally:
        for name in given:
            del scope[name]
        scope.update(before)


def _forward_text(cls: type) -> str:
    """Return the arguments of an object's call, for a class that could not be created."""
    function = call_method(cls)
    parameters = [] if function is None else signature_of(function)
    roles = roles_of(parameters)
    return f"({shown_text({p.name: array_name(roles[p.name]) for p in parameters if p.default is p.empty})})"
