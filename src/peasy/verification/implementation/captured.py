"""Captured calls: a model of the same project that contains the code under test is run up to its call, which is kept.

How to call a layer whose arguments cannot be guessed (rotary tables, processors, settings) is known to the classes
that create it: their own arguments are sizes, and at the top they take token ids or pictures.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peasy.verification.implementation.arguments import ConfigGuess, Sizes, constructor_attempts, roles_of, signature_of
from peasy.verification.implementation.call_text import call_method
from peasy.verification.implementation.forms import ARRAY_ROLES
from peasy.verification.implementation.loading import (
    StandInFinder,
    StatementFinder,
    definitions,
    package_root,
    project_files,
    project_folders,
)
from peasy.verification.implementation.repeated_call import quiet

_MAX_CALLERS, _MAX_TRIALS, _MAX_RUNS, _MAX_STEPS, _MAX_NUMBERS, _MANY = 12, 12, 400, 5_000_000, 30_000_000, 16
"""Classes that are run, constructors of one class, its runs, steps of one search, and numbers of its parameters; a
number of tokens above which there are many."""


class Reached(BaseException):
    """The code under test was called; no `except Exception` of the model stops it."""


@dataclass
class CapturedCall:
    """Arguments with which a model creates and calls the code under test, by name, and the class of the model."""

    caller: str
    created: dict[str, object] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    guessed: bool = False
    """Whether settings of the model are guessed whose names are not known."""
    invented: str = ""
    """Arguments that got a module which changes nothing, as theirs is not known."""
    ended: bool = False
    """Whether the search for it is over."""


def smaller_calls(call: CapturedCall, inputs: Mapping[str, Any]) -> Iterator[CapturedCall]:
    """Yield a call with fewer tokens and sequences, where its author has many, and at last as it is.

    Numbers that are equal to a size that is cut are cut with it: those of the constructor only where it runs no other
    way. Widths stay: they belong to the weights.
    """
    shapes = [tuple(array.shape) for array in inputs.values()]
    tokens = {n for shape in shapes for n in shape[:-1] if n > _MANY}
    sides = {n for shape in shapes if len(shape) == 4 for n in shape[2:] if n > _MANY}
    kept = {n for shape in shapes for n in shape} - tokens
    fresh = [n for n in range(5, 64) if n not in kept]
    for own, (sizes, last) in itertools.product(
        (False, True), ((tokens, 1), (sides, 0), ({shape[0] for shape in shapes} & tokens, 1))
    ):
        for smaller in (
            dict(zip(sorted(sizes), fresh, strict=False)), dict.fromkeys(sizes, _MANY),
            *({n: n // part for n in sizes if n % part == 0 and n // part > 3} for part in (8, 4, 2)),
        ):  # fmt: skip
            created = {n: _cut(v, smaller) for n, v in call.created.items()} if own else call.created
            if smaller and (not own or repr(created) != repr(call.created)):
                arguments = {n: _cut(v, smaller, last if n in inputs else 0) for n, v in call.arguments.items()}
                yield replace(call, created=created, arguments=arguments)
    yield call


def _cut(value: Any, smaller: Mapping[int, int], last: int = 0) -> object:
    """Return a number, or an array, or several of them, with smaller sizes; `last` axes of an array stay."""
    if type(value) is int:
        return smaller.get(value, value)
    if type(value) in (tuple, list):
        return type(value)(_cut(each, smaller, last) for each in value)
    if not hasattr(type(value), "ndim"):
        return value
    return value[tuple(slice(smaller.get(n, n)) for n in value.shape[: value.ndim - last])]


def captured_calls(
    target: object, sizes: Sizes, file: str, guesses: Callable[[Any, Sizes], Iterator[Callable[[], object]]]
) -> Iterator[CapturedCall]:
    """Yield the call of the target in each class of its project that contains it; `guesses` are calls of an object."""
    for caller in _callers(target, Path(file)):
        call, runs = CapturedCall(caller.__name__), _MAX_RUNS
        with kept_call(call, target), quiet():
            for number, arguments in enumerate(constructor_attempts(caller, sizes)):
                if number == _MAX_TRIALS or call.ended:
                    break
                with contextlib.suppress(Exception, SystemExit, Reached):
                    made = caller(**arguments)
                    if hasattr(made, "eval"):
                        made.eval()
                    for run in itertools.islice(guesses(made, sizes), runs):
                        runs -= 1
                        with contextlib.suppress(Exception, SystemExit):
                            run()
                call.guessed = any(isinstance(v, ConfigGuess) and v.guesses for v in arguments.values())
        if call.arguments:
            yield call


@contextlib.contextmanager
def kept_call(call: CapturedCall, target: Any) -> Iterator[None]:
    """Keep the arguments of the target's constructor and of its first call, and stop there, or after many steps.

    Steps are calls of functions and their ends, and numbers of parameters: counts, so that each computer comes equally
    far.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook as on_parameter

    numbers = 0
    method, steps, created = call_method(target) if inspect.isclass(target) else target, 0, dict[int, dict[str, Any]]()
    made = [target.__init__, method] if inspect.isclass(target) else [None, method]
    arrays = [n for n, role in roles_of(signature_of(method)).items() if role in ARRAY_ROLES]
    create, wanted = (getattr(inspect.unwrap(each), "__code__", None) if each else None for each in made)

    def watch(frame: types.FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += 1
        call.ended = call.ended or steps > _MAX_STEPS
        if event == "call" and frame.f_code in (create, wanted):  # equal also if it was imported a second time
            names, _, others, values = inspect.getargvalues(frame)
            given = {name: values[name] for name in names} | values.get(others or "", {})
            owner = given.pop(names[0]) if inspect.isclass(target) and names else None
            if frame.f_code == create:
                created[id(owner)] = given
            elif owner is None or any(base.__name__ == target.__name__ for base in type(owner).__mro__):
                kept = [given[name] for name in arrays if hasattr(given.get(name), "dtype")]
                if kept and all(map(is_array, kept)):  # not the ids that a model was tried with
                    call.created, call.arguments, call.ended = created.get(id(owner), {}), given, True
        if call.ended:
            raise Reached

    def weigh(module: Any, name: str, parameter: Any) -> None:
        nonlocal numbers
        numbers += 0 if parameter is None or "Uninitialized" in type(parameter).__name__ else parameter.numel()
        if numbers > _MAX_NUMBERS:
            call.ended = True
            raise Reached

    before, hook = sys.getprofile(), on_parameter(weigh)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
        hook.remove()


def _callers(target: Any, file: Path) -> Iterator[type]:
    """Yield classes of the project that create or call the target, directly at first, then those that contain them."""
    sources = _class_sources(file)
    wanted, seen = [target.__name__], {target.__name__}
    found: list[tuple[Path, str]] = []
    while wanted:
        name = wanted.pop(0)
        for path, other, text in sources:
            if other not in seen and re.search(rf"(?<!def )(?<!class )\b{re.escape(name)} *[(,)]", text):
                seen.add(other)
                wanted.append(other)
                found.append((path, other))
    for path, name in found[:_MAX_CALLERS]:
        caller = _imported(path, name, file)
        if inspect.isclass(caller) and caller is not target:
            yield caller


@functools.cache
def _class_sources(file: Path) -> list[tuple[Path, str, str]]:
    """Return the classes of the project's files, those of the same file and folder first: file, name, source."""
    files = project_files(file, ".py") if file.suffix == ".py" else [file]
    return [
        (path, node.name, source) for path in files for node, source in definitions(path)
        if isinstance(node, ast.ClassDef)
    ]  # fmt: skip


@functools.cache
def project_class(name: str, file: Path) -> Any:
    """Return the class of a project with a name, nearest first: one that is only imported for annotations."""
    if not re.fullmatch(r"[A-Z]\w{2,}", name):
        return None
    return next((_imported(path, name, file) for path, other, _ in _class_sources(file) if other == name), None)


def _imported(path: Path, name: str, file: Path) -> object:
    """Return a class of a file of the project; its definitions are run, not its loops and calls."""
    loaded = [module for module in sys.modules.values() if getattr(module, "__file__", None) == str(path)]
    if not loaded:
        parts = path.with_suffix("").relative_to(package_root(path)).parts
        missing: list[str] = []
        with contextlib.suppress(Exception, SystemExit), StandInFinder(missing), StatementFinder(project_folders(file)):
            loaded = [importlib.import_module(".".join(parts))]
    return getattr(loaded[0], name, None) if loaded else None


def is_array(value: object) -> bool:
    """Return whether a captured argument is a tensor or an array of numbers that are not whole."""
    kind = str(getattr(value, "dtype", ""))
    return "float" in kind and getattr(value, "ndim", 0) > 1
