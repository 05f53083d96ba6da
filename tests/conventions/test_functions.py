"""Short functions, descriptive module names, and only the CLI prints."""

import ast
from collections.abc import Iterable

import pytest

MAX_FUNCTION_LINES = 60
"""Without signature and docstring: they explain every parameter of a command."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}


def long_functions(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [node.name for node in functions if (node.end_lineno or 0) - first_line(node) >= MAX_FUNCTION_LINES]


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Line of the first statement after the docstring, or of the last statement if there is none."""
    has_docstring = ast.get_docstring(function) is not None and len(function.body) > 1
    return function.body[1 if has_docstring else 0].lineno


def prints(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(isinstance(called, ast.Name) and called.id in ("print", "input") for called in calls)


DIRECT_CALLS = (
    "os.write(1", "os.write(2", "os.writev(", "os.fdopen(1", "os.fdopen(2", "open('/dev/tty", "open(1", "open(2",
    "faulthandler.",
)  # fmt: skip
WORKERS = ("tokenization/sandbox.py", "tokenization/encode_worker.py", "verification/implementation/worker.py")
"""Programs of their own, whose output another process reads."""


def ways_around_the_guard(tree: ast.AST) -> list[str]:
    """Ways to a terminal that do not pass `cli/terminal_stream.py`: descriptors, the original or binary streams."""
    found = []
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Call)) else ""
        if isinstance(node, ast.Attribute) and text.startswith("sys.__std"):
            found.append(text)
        elif isinstance(node, ast.Attribute) and node.attr in ("buffer", "raw", "detach"):
            found += [text] if any(name in text for name in ("stdout", "stderr", "terminal")) else []
        elif isinstance(node, ast.Call) and text.startswith(DIRECT_CALLS):
            found.append(text)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Console"):
            streams = [ast.unparse(keyword.value) for keyword in node.keywords if keyword.arg == "file"]
            found += [text] if not streams or streams[0].startswith("sys.") else []
    return found


def test_all_output_passes_the_guard_of_the_terminal(sources):
    """The two exceptions: the guard gets the original stream itself, and a drawing is captured as text."""
    allowed = {"cli/app.py": ["sys.__stderr__"], "cli/output.py": ["Console("]}
    found = {s.name: ways_around_the_guard(s.tree) for s in sources if s.name not in WORKERS}
    for name, starts in allowed.items():
        assert len(found[name]) == 1
        found[name] = [way for way in found[name] if not way.startswith(tuple(starts))]
    assert {name: ways for name, ways in found.items() if ways} == {}


def test_functions_are_short(sources):
    assert not {s.name: names for s in sources if (names := long_functions(s.tree))}


def test_no_module_has_a_vague_name(sources):
    assert not [s.name for s in sources if VAGUE_NAMES & {s.path.stem, *s.path.relative_to(s.path.parents[2]).parts}]


def test_only_the_cli_prints(sources):
    assert not [s.name for s in sources if prints(s.tree) and not s.name.startswith("cli/")]


def uses_of_any(tree: ast.AST) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


def test_few_types_are_any(sources):
    """A value that is only passed on is an `object`: `Any` turns the type checker off."""
    assert uses_of_any(ast.parse("from typing import Any\nx: dict[str, Any]\ndef f(y: Any) -> Any: ...")) == 3
    assert sum(uses_of_any(source.tree) for source in sources) < 400


def test_no_todo_is_left_in_the_source(sources):
    assert not [s.name for s in sources for word in ("TODO", "FIXME", "XXX", "NotImplementedError") if word in s.text]


def decorated_records(trees: Iterable[ast.AST]) -> list[str]:
    """Subclasses of `Record` with `@dataclass`: the base makes them frozen dataclasses, and Python's error at a second
    one ("Cannot overwrite attribute", "cannot inherit non-frozen") does not say so."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def is_record(name: str) -> bool:
        bases = [ast.unparse(base).rpartition(".")[2] for base in classes[name].bases] if name in classes else []
        return name == "Record" or any(map(is_record, bases))

    with_decorator = [name for name, node in classes.items() if "dataclass" in map(_decorator, node.decorator_list)]
    return [name for name in with_decorator if is_record(name)]


def _decorator(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def test_records_have_no_decorator(sources):
    assert not decorated_records(s.tree for s in sources)


@pytest.mark.parametrize("decorator", ["@dataclass", "@dataclasses.dataclass(frozen=True)"])
def test_a_record_with_a_decorator_is_found(decorator):
    code = f"class Result(Record): pass\n{decorator}\nclass Own(result.Result):\n    x: int"
    assert decorated_records([ast.parse(code)]) == ["Own"]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (long_functions, "def f():\n" + "    x = 1\n" * (MAX_FUNCTION_LINES + 1)),
        (prints, "def f():\n    print(1)"),
        (ways_around_the_guard, "sys.__stdout__.write('x')"),
        (ways_around_the_guard, "sys.stdout.buffer.write(b'x')"),
        (ways_around_the_guard, "os.write(2, b'x')"),
        (ways_around_the_guard, "Console(file=sys.stderr).print('x')"),
        (ways_around_the_guard, "rich.console.Console().print('x')"),
        (ways_around_the_guard, "open('/dev/tty', 'w')"),
    ],
)
def test_the_rules_can_be_broken(rule, code):
    assert rule(ast.parse(code))
