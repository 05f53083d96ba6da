"""Example calls: code of the project that creates and calls the code under test is run up to that call, which is kept.

Such code stands under `if __name__ == "__main__"`, in tests, in notebooks, docstrings and READMEs. Only the statements
that the call depends on are run: neither loops, nor training, nor what writes files or uses the network.
"""

import ast
import contextlib
import inspect
import itertools
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peasy.errors import InvalidInput
from peasy.verification.implementation.captured import CapturedCall, Reached, kept_call
from peasy.verification.implementation.loading import project_files, python_source
from peasy.verification.implementation.repeated_call import quiet

_MAX_TRIALS, _MAX_BYTES, _MAX_CALLS, _MAX_STATEMENTS = 24, 1_000_000, 4, 40
"""Examples that are run, size of a file that is read, calls that are kept, and statements of one example."""
_ACTS = re.compile(
    r"\b(subprocess|shutil|requests|urllib|socket|os\.(?!path|environ)\w+|load_dataset)\b|download|upload"
    r"|\.(save\w*|to_csv|write\w*|unlink|push_to_hub|fit|backward)\(|\bopen\(.*,.*[\"'][wax]"
)
"""Code that does more than to make a call ready: starts programs, writes files, uses the network, trains."""
_NAME = r"(?:self\.)?[^\W\d]\w*"


def example_calls(target: Any, file: str) -> Iterator[CapturedCall]:
    """Yield the calls of the target in its own file, in tests, READMEs and other files of its project."""
    count = 0
    module = sys.modules.get(target.__module__)
    examples = _examples(target.__name__, Path(file), inspect.isclass(target))
    for path, statements in itertools.islice(examples, _MAX_TRIALS):
        if count == _MAX_CALLS:
            return
        call = CapturedCall(path.name)
        scope = {**vars(module), "self": types.SimpleNamespace(), "__name__": "example"} if module else {}
        with kept_call(call, target), quiet(), contextlib.suppress(Reached):
            for statement in statements:
                scope[target.__name__] = target  # an import may have bound another copy of it
                with contextlib.suppress(Exception, SystemExit):
                    exec(compile(ast.Module([statement], []), str(path), "exec"), scope)
        if call.arguments:
            count += 1
            yield call


def _examples(name: str, file: Path, created: bool) -> Iterator[tuple[Path, list[ast.stmt]]]:
    """Yield the files and statements that call a function, or an object that they create."""
    for path in _files(file):
        with contextlib.suppress(SyntaxError, ValueError, OSError, InvalidInput):
            text = path.read_text("utf-8-sig", errors="replace") if path.stat().st_size < _MAX_BYTES else ""
            if name not in text:
                continue
            source = python_source(path) if path.suffix in (".py", ".ipynb") else _code_of(text)
            for body in _bodies(ast.parse(source), path == file):
                yield from ((path, statements) for statements in _calls_in(body, name, created))


def _files(file: Path) -> list[Path]:
    """Return the files that may call code of a file: itself, tests, examples and READMEs, then others near it."""
    first, *others = project_files(file, ".py", ".ipynb", ".md", ".rst")
    return [first, *sorted(others, key=lambda path: not re.search(r"test|readme|example|demo|usage", path.name, re.I))]


def _code_of(text: str) -> str:
    """Return the code blocks of a text: fenced, or behind >>>."""
    fenced = re.findall(r"^\s*```(?:python|py)\s*\n(.*?)^\s*```", text, re.M | re.S)
    prompts = re.findall(r"^\s*(?:>>>|\.\.\.) ?(.*)$", text, re.M)
    blocks = [textwrap.dedent(block) for block in fenced if ">>>" not in block]
    return "\n".join([*filter(_is_code, blocks), *([code] if _is_code(code := "\n".join(prompts)) else [])])


def _is_code(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _bodies(tree: ast.Module, own: bool) -> Iterator[list[ast.stmt]]:
    """Yield the statements that run together: of the file, of each function after its class's setUp, of docstrings.

    The file that is examined has its definitions already.
    """
    definitions = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    top = [node for node in tree.body if not own or not isinstance(node, definitions)]
    yield _flat(top)
    imports = [node for node in top if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
            yield _flat(ast.parse(_code_of(text)).body)
        if isinstance(node, ast.Module | ast.ClassDef):
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            first = [line for each in functions if each.name.lower().startswith("setup") for line in each.body]
            yield from ([*imports, *_flat([*first, *each.body])] for each in functions if "setup" not in each.name)


def _flat(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with those inside of conditions, contexts and `try`, but without loops."""
    flat: list[ast.stmt] = []
    for node in body:
        inner = getattr(node, "body", None)
        if isinstance(node, ast.If | ast.With | ast.Try) and isinstance(inner, list):
            flat += _flat(inner)
        elif not isinstance(node, ast.For | ast.While):
            flat.append(node)
    return flat


def _calls_in(body: list[ast.stmt], name: str, created: bool) -> Iterator[list[ast.stmt]]:
    """Yield for each statement that makes a call the statements it depends on, in their order."""
    texts = [ast.unparse(node) for node in body]
    if not any(re.search(rf"\b{name}\(", text) for text in texts):
        return
    objects: set[str] = set()
    for last, text in enumerate(texts):
        makes = re.search(rf"\b{name}\(", text)
        if makes and created:
            objects |= _bound(body[last])
        called = objects - {name} if created else {name}
        direct = created and makes and re.search(r"\)\(|\)\.\w+\(", text)
        if not isinstance(body[last], ast.FunctionDef | ast.ClassDef) and (
            direct or any(re.search(rf"(?<![\w.]){re.escape(each)}(\.\w+)?\(", text) for each in called)
        ):
            needed = _needed(body, texts, last)
            if len(needed) <= _MAX_STATEMENTS and not any(map(_ACTS.search, map(ast.unparse, needed))):
                yield needed


def _needed(body: list[ast.stmt], texts: list[str], last: int) -> list[ast.stmt]:
    """Return a statement after those that bind the names it uses."""
    wanted, chosen = set(re.findall(_NAME, texts[last])), [last]
    for number in range(last - 1, -1, -1):
        if _bound(body[number]) & wanted:
            chosen.append(number)
            wanted |= set(re.findall(_NAME, texts[number]))
    return [body[number] for number in reversed(chosen)]


def _bound(node: ast.stmt) -> set[str]:
    """Return the names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {name for each in targets if each is not None for name in re.findall(_NAME, ast.unparse(each))}
