"""Loading of the code under test: a file, a file inside a package, `package.module:name`, or a notebook."""

import ast
import importlib
import importlib.util
import json
import linecache
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peasy.errors import InvalidInput, NotFound, did_you_mean


def package_root(file: Path) -> Path:
    """Return the folder from which a file is imported: above its outermost package, or the file's own folder."""
    folder = file.resolve().parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def project_folders(file: Path) -> list[Path]:
    """Return folders that imports may start from: the package root, and `src` and the root of the project around it."""
    root = package_root(file)
    folders = [root]
    for parent in (root, *list(root.parents)[:4]):
        if any((parent / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg", ".git", "requirements.txt")):
            folders += [parent, parent / "src"]
            break
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def load_module(file: Path | None, module: str = "") -> types.ModuleType:
    """Import a file with its package, a notebook, or a module by its dotted name."""
    if file is None:
        sys.path.insert(0, "")
        return importlib.import_module(module)
    for folder in reversed(project_folders(file)):
        sys.path.insert(0, str(folder))
    if file.suffix == ".ipynb":
        return _run_notebook(file)
    root = package_root(file)
    parts = file.resolve().with_suffix("").relative_to(root).parts
    if len(parts) > 1:
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        try:
            return importlib.import_module(name)
        except ImportError as error:
            if error.name and not name.startswith(error.name.partition(".")[0]):
                return _import_without_package(file, name, error)
            raise
    return _import_file(file, file.stem)


def _import_without_package(file: Path, name: str, error: ImportError) -> types.ModuleType:
    """Import a file of a package whose `__init__` fails, with empty packages around it; relative imports still work."""
    parts = name.split(".")
    folder = package_root(file)
    for number, part in enumerate(parts[:-1], 1):
        folder = folder / part
        dotted = ".".join(parts[:number])
        stand_in = types.ModuleType(dotted)
        stand_in.__path__ = [str(folder)]
        sys.modules[dotted] = stand_in
    for loaded in [key for key in sys.modules if key.startswith(f"{parts[0]}.") and key.count(".") >= len(parts) - 1]:
        sys.modules.pop(loaded, None)
    try:
        return _import_file(file, name)
    except ImportError:
        raise error from None


def _import_file(file: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def notebook_source(file: Path) -> str:
    """Return the code cells of a notebook as one source; magics and shell lines become comments."""
    try:
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(f"{file.name} is not a notebook.", hint="Give a .ipynb file as Jupyter saves it.") from None
    lines: list[str] = []
    for cell in cells:
        if cell.get("cell_type") == "code":
            text = "".join(cell.get("source", ()))
            if text.startswith("%%"):
                continue
            lines += [f"# {line}" if line.lstrip().startswith(("%", "!", "?")) else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _run_notebook(file: Path) -> types.ModuleType:
    """Run a notebook's definitions cell by cell; a cell that fails does not stop later definitions."""
    source = notebook_source(file)
    linecache.cache[str(file)] = (len(source), None, source.splitlines(keepends=True), str(file))
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    for node in ast.parse(source, str(file)).body:
        try:
            exec(compile(ast.Module([node], []), str(file), "exec"), module.__dict__)
        except Exception as error:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                raise
            module.__dict__.setdefault("_cell_errors", []).append(error)
    return module


def find_target(module: types.ModuleType, name: str, where: str) -> Any:
    """Return the object with a dotted name; else an error with the closest name."""
    target: Any = module
    for part in name.split("."):
        target = getattr(target, part, None)
        if target is None:
            own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
            names = [n for n, v in own.items() if not n.startswith("_") and callable(v)]
            hint = did_you_mean(name, names) or f"It has: {', '.join(names) or 'no functions or classes'}."
            raise NotFound(f'{where} has no "{name}".', hint=hint)
    return target


def defined_names(file: Path) -> list[str]:
    """List functions and classes of a file or notebook without running it."""
    try:
        text = notebook_source(file) if file.suffix == ".ipynb" else file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError, ValueError, OSError):
        return []
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]


_SIGNS = ("softmax", "scaled_dot_product_attention", "matmul", "einsum", "bmm", "@", "exp(")


def attention_candidates(file: Path) -> Iterator[str]:
    """Yield the functions and classes of a file that look like attention: a softmax and a product in one body."""
    try:
        text = notebook_source(file) if file.suffix == ".ipynb" else file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError, ValueError, OSError, InvalidInput):
        return
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("test"):
            continue
        body = ast.get_source_segment(text, node) or ""
        named = "attention" in node.name.lower() or "attn" in node.name.lower() or "head" in node.name.lower()
        fused = "scaled_dot_product_attention" in body or "multi_head_attention" in body
        softmax = "softmax" in body.lower() or ("exp(" in body and "sum(" in body)
        product = " @ " in body or any(sign in body for sign in ("matmul", "einsum", "bmm", ".dot("))
        if isinstance(node, ast.ClassDef) and not any(
            isinstance(each, ast.FunctionDef) and each.name in ("forward", "__call__", "call") for each in node.body
        ):
            continue
        if fused or (softmax and product and body.count("softmax") < 12) or (named and product):
            yield node.name
