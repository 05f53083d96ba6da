"""Loading of the code under test: a file, a file inside a package, `package.module:name`, or a notebook."""

import __future__

import ast
import contextlib
import dis
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import linecache
import os
import re
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from peasy.errors import InvalidInput, NotFound, did_you_mean


def package_root(file: Path) -> Path:
    """Return the folder from which a file is imported: above its outermost package, or the file's own folder.

    A package may lack `__init__.py`: then the dots of the file's relative imports say how many folders belong to it.
    """
    folder, dots = file.resolve().parent, _relative_levels(file)
    while ((folder / "__init__.py").exists() or dots > 0) and folder.parent != folder:
        folder, dots = folder.parent, dots - 1
    return folder


def _relative_levels(file: Path) -> int:
    """Return the most dots with which a file imports."""
    return max((node.level for node in _imports(file) if isinstance(node, ast.ImportFrom)), default=0)


@functools.cache
def _imports(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a file or notebook, also those inside of functions."""
    with contextlib.suppress(SyntaxError, UnicodeDecodeError, OSError):
        return [
            node for node in ast.walk(ast.parse(python_source(file))) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
    return []


def project_folders(file: Path) -> list[Path]:
    """Return folders that imports may start from: the package root, `src` and the root of the project around it.

    Without the usual files of a project's root it is the folder that has the modules which the file imports.
    """
    root = package_root(file)
    folders, paths = [root], set(_imported_paths(file))
    for parent in (root, *[each for each in root.parents if len(each.parts) > 2][:4]):
        if any(_has(parent, path) for path in paths):
            folders.append(parent)
        if any(
            (parent / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg", ".git", "requirements.txt")
        ):
            folders += [parent, parent / "src"]
            break
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _has(folder: Path, path: str) -> bool:
    """Return whether a folder has a module or a package, by its path without a suffix."""
    return (folder / path).is_dir() or (folder / f"{path}.py").exists()


def project_files(file: Path, *suffixes: str) -> list[Path]:
    """Return the files of a file's project, itself first, then those near it; 2,000 at most."""
    others, count, around = list[Path](), 0, file.resolve().parents
    foreign = re.compile(r"\.|(node_modules|site-packages)$")
    for folder, inner, names in os.walk(project_folders(file)[-1]):
        inner[:] = sorted(name for name in inner if not foreign.match(name) or Path(folder, name) in around)
        others += [Path(folder, name) for name in names if name.endswith(suffixes)]
        count += len(names)
        if count > 50_000:  # a home folder would take minutes
            break
    near = sorted(others, key=lambda path: (-len(os.path.commonpath([path, file])), path))
    return list(dict.fromkeys([file, *near[:2000]]))


def _imported_paths(file: Path) -> Iterator[str]:
    """Yield the modules that a file imports by absolute names, as paths without a suffix."""
    for node in _imports(file):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.replace(".", "/")
        elif isinstance(node, ast.Import):
            yield from (alias.name.replace(".", "/") for alias in node.names)


def load_module(file: Path | None, module: str = "", folder: str = "") -> tuple[types.ModuleType, list[str]]:
    """Import a file with its package, a notebook, or a module by name; also return notes on what was left out.

    A script that trains when imported is loaded by its definitions. Packages that are not installed are replaced by
    stand-ins, which raise when they are used. If the import fails, the modules of the project run by statements.
    """
    if file is None:
        sys.path.insert(0, folder)
        return importlib.import_module(module), []
    folders = project_folders(file)
    packages = [path for path in _imported_paths(file) if "/" in path and any(_has(each, path) for each in folders)]
    for each in reversed(folders):
        if not any((each / f"{path.partition('/')[0]}.py").exists() for path in packages):  # utils.py hides utils/
            sys.path.insert(0, str(each))
    if file.suffix == ".ipynb":
        return _run_alone(file), []
    if package_root(file) == file.resolve().parent and _works_at_import(file):
        note = "Loops and calls at the top level of the file were not run: only its definitions."
        return _run_alone(file), [note]
    missing: list[str] = []
    try:
        loaded = _import_with_stand_ins(file, missing)
    except (Exception, SystemExit) as error:  # a script may read its command line when it is imported
        if isinstance(error, SyntaxError) and error.filename == str(file):
            raise
        with StandInFinder(missing), StatementFinder(project_folders(file)):
            _forget_modules(file)
            loaded = _import_in_package(file)
        note = f"Importing it failed ({type(error).__name__}): it was run statement by statement, as what it imports."
        vars(loaded).setdefault("_failed", []).insert(0, error)
        _bind_failed_imports(file, loaded)
        return loaded, [*_stand_in_note(missing), note]
    _add_script_settings(file, loaded)
    _bind_failed_imports(file, loaded)
    return loaded, _stand_in_note(missing)


def _bind_failed_imports(file: Path, module: types.ModuleType) -> None:
    """Bind the names that a file imports in vain, under `try` or inside of functions, to what is known of them."""
    for node in _imports(file):
        origin = f"{node.module}." if isinstance(node, ast.ImportFrom) and not node.level else ""
        for alias in node.names if origin or isinstance(node, ast.Import) else ():
            name = alias.asname or (alias.name if origin else alias.name.partition(".")[0])
            if name not in vars(module) and name != "*":
                known = _known_object(origin + alias.name)
                vars(module)[name] = known or (StandIn(origin + alias.name) if origin else StandInModule(name))


def _forget_modules(file: Path) -> None:
    """Forget the modules of the project, after an import that failed."""
    root = str(package_root(file))
    for name, module in list(sys.modules.items()):
        path = str(getattr(module, "__file__", None) or "")
        if path.startswith(root) and "site-packages" not in path:
            del sys.modules[name]


def _add_script_settings(file: Path, module: types.ModuleType) -> None:
    """Add numbers that a script sets under `if __name__ == "__main__"` and its classes use as globals."""
    for node in ast.parse(python_source(file)).body:
        if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name | ast.Tuple):
                    with contextlib.suppress(Exception):
                        ast.literal_eval(line.value)
                        exec(compile(ast.Module([line], []), str(file), "exec"), module.__dict__)


def _stand_in_note(missing: list[str]) -> list[str]:
    names = ", ".join(name for name in missing if name != "einops")  # what is used of einops is known
    return [f"Not installed, and replaced by stand-ins that raise when used: {names}."] if names else []


def _import_with_stand_ins(file: Path, missing: list[str]) -> types.ModuleType:
    """Import a file; a package that is not installed, and whose absence stops the import, gets a stand-in."""
    with StandInFinder(missing):
        while True:
            try:
                return _import_in_package(file)
            except ModuleNotFoundError as error:
                top = (error.name or "").partition(".")[0]
                own = any((each / top).exists() or (each / f"{top}.py").exists() for each in project_folders(file))
                if not top or top in missing or own or top in sys.stdlib_module_names or len(missing) >= 24:
                    raise
                missing.append(top)
                _forget_modules(file)


def _works_at_import(file: Path) -> bool:
    """Return whether a file has loops at its top level: a script that trains or reads data when it is imported."""
    try:
        tree = ast.parse(python_source(file))
    except (SyntaxError, UnicodeDecodeError):
        return False
    return any(isinstance(node, ast.For | ast.While) for node in tree.body)


def _import_in_package(file: Path) -> types.ModuleType:
    parts = file.resolve().with_suffix("").relative_to(package_root(file)).parts
    if len(parts) > 1:
        return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    if any(isinstance(finder, StatementFinder) for finder in sys.meta_path):
        return _run_alone(file)
    name = _module_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{file.name} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class StatementFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder, before all others, of modules in some folders: they run by statements, and one that fails is skipped."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = [str(folder) for folder in folders]

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Return a spec for a module of these folders."""
        spec = importlib.machinery.PathFinder.find_spec(name, list(path or self.folders))
        origin = "" if spec is None else str(spec.origin)
        if spec is None or not origin.endswith(".py") or "site-packages" in origin:
            return None
        return spec if not origin.startswith(tuple(self.folders)) else importlib.util.spec_from_file_location(
            name, origin, loader=self, submodule_search_locations=spec.submodule_search_locations
        )  # fmt: skip

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the statements of the module's file."""
        _run_statements(module, Path(str(module.__file__)))

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder, after all others, that gives a stand-in for packages that are not installed."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Return a spec for one of the missing packages."""
        if name.partition(".")[0] in self.names:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Return an empty stand-in."""
        return StandInModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in is empty."""

    def __enter__(self) -> None:
        sys.meta_path.append(self)
        StandIn.importing = True

    def __exit__(self, *error: object) -> None:
        sys.meta_path.remove(self)
        StandIn.importing = False


class StandInModule(types.ModuleType):
    """Module that is not installed; everything in it exists, and raises when it is used after the import."""

    __version__ = "99.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        origin = f"{self.__name__}.{name}"
        return _known_object(origin) or StandIn(origin)


def _known_object(origin: str) -> object:
    """Return what a well-known object of another package is, in one process and in evaluation mode; None if unknown."""
    from peasy.verification.implementation.package_functions import KNOWN, KNOWN_ANYWHERE

    package, name = origin.partition(".")[0], origin.rpartition(".")[2]
    return {**KNOWN_ANYWHERE, **{function.__name__: function for function in KNOWN.get(package, ())}}.get(name)


_LOGGING = frozenset({"debug", "info", "warning", "warn", "log", "print", "track", "save"})
"""Functions that only report what they get."""


class StandIn:
    """Object of a package that is not installed: usable while a file is imported; afterwards every use raises."""

    importing = False

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        origin = f"{self._name}.{name}"
        return _known_object(origin) or StandIn(origin)

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Return a decorated function or class as it is, and a stand-in during the import; else raise."""
        if len(args) == 1 and not kwargs and isinstance(args[0], type | types.FunctionType):
            return args[0]  # used as a decorator
        if StandIn.importing:
            return StandIn(f"{self._name}()")
        if self._name.rpartition(".")[2] in _LOGGING:
            return None
        package = self._name.partition(".")[0]
        absent = isinstance(sys.modules.get(package), StandInModule) or importlib.util.find_spec(package) is None
        why = "not installed" if absent else "not importable"
        raise ModuleNotFoundError(f"{self._name} is needed, but {package} is {why}", name=package)

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        """As a base class: a module that takes any arguments, unless another base is one."""
        torch_nn = sys.modules.get("torch.nn")
        if torch_nn is None or any(isinstance(base, type) for base in bases):
            return ()

        class AnyModule(torch_nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, *args: object, **kwargs: object) -> None:
                super().__init__()

        return (AnyModule,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StandIn) and self._name == other._name

    def __hash__(self) -> int:
        return hash(self._name)

    def __bool__(self) -> bool:
        return False

    def __getitem__(self, key: object) -> "StandIn":
        return self

    def __iter__(self) -> Iterator[object]:
        return iter(())  # with __getitem__ alone, a loop over it would not end

    def __or__(self, other: object) -> object:
        return self

    __ror__ = __or__

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


def _module_name(file: Path) -> str:
    """Return the name under which a file is imported; another one if it would hide a loaded module (torch.py)."""
    return f"examined_{file.stem}" if file.stem in sys.modules or file.stem in ("torch", "numpy") else file.stem


def python_source(file: Path) -> str:
    """Return the source of a Python file or of a notebook."""
    return _notebook_source(file) if file.suffix == ".ipynb" else file.read_text(encoding="utf-8-sig")


def _notebook_source(file: Path) -> str:
    """Return the code cells of a notebook as one source; magics and shell lines become comments."""
    try:
        cells = json.loads(file.read_text(encoding="utf-8-sig"))["cells"]
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


_DEFINITIONS = (
    ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.FunctionDef, ast.ClassDef, ast.Try,
    ast.If,
)  # fmt: skip


def _run_alone(file: Path) -> types.ModuleType:
    """Run the definitions of a file as a module of its own."""
    source = python_source(file)
    if file.suffix == ".ipynb":
        linecache.cache[str(file)] = (len(source), None, source.splitlines(keepends=True), str(file))
    module = types.ModuleType(_module_name(file))
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    _run_statements(module, file)
    _add_script_settings(file, module)
    return module


def _run_statements(module: types.ModuleType, file: Path) -> None:
    """Run imports, assignments and definitions one by one; one that fails does not stop the others."""
    source = python_source(file)
    later = re.search(r"^from __future__ import .*\bannotations", source, re.M)  # annotations need not be right
    flags = __future__.annotations.compiler_flag if later else 0
    for node in ast.parse(source, str(file)).body:
        if not isinstance(node, _DEFINITIONS):
            continue
        try:
            exec(compile(ast.Module([node], []), str(file), "exec", flags), module.__dict__)
        except (Exception, SystemExit) as error:
            module.__dict__.setdefault("_failed", []).append(error)
            if isinstance(node, ast.Import | ast.ImportFrom):
                _import_names(node, file, module)


def _import_names(node: ast.Import | ast.ImportFrom, file: Path, module: types.ModuleType) -> None:
    """Repeat an import that failed, name by name; what cannot be imported becomes a stand-in."""
    for alias in node.names:
        single = (
            ast.Import([alias]) if isinstance(node, ast.Import) else ast.ImportFrom(node.module, [alias], node.level)
        )
        ast.copy_location(single, node)
        try:
            exec(compile(ast.Module([single], []), str(file), "exec"), module.__dict__)
        except (Exception, SystemExit):
            origin = f"{node.module or 'package'}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            name = alias.asname or alias.name.partition(".")[0]
            module.__dict__.setdefault(name, _known_object(origin) or StandIn(origin))


def find_target(module: types.ModuleType, name: str, where: str) -> object:
    """Return the object with a dotted name; else an error with the closest name."""
    target: object = module
    for part in name.split("."):
        target = getattr(target, part, None)
        if target is None and vars(module).get("_failed"):
            raise vars(module)["_failed"][0]
        if target is None:
            own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
            names = [n for n, v in own.items() if not n.startswith("_") and callable(v)]
            hint = did_you_mean(name, names) or f"It has: {', '.join(names) or 'no functions or classes'}."
            raise NotFound(f'{where} has no "{name}".', hint=hint)
    return target


def definitions(file: Path) -> Sequence[tuple[ast.FunctionDef | ast.ClassDef, str]]:
    """Return the functions and classes of a file or notebook, with their source, without running it."""
    try:
        return _definitions_of(python_source(file))
    except (SyntaxError, UnicodeDecodeError, ValueError, OSError, InvalidInput):
        return ()


@functools.lru_cache(256)  # read again for each call that is tried
def _definitions_of(text: str) -> Sequence[tuple[ast.FunctionDef | ast.ClassDef, str]]:
    lines = text.split("\n")  # ast.get_source_segment splits the whole text again for each node
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return [(node, "\n".join(lines[node.lineno - 1 : node.end_lineno])) for node in nodes]


@functools.cache
def global_names(file: Path) -> set[str]:
    """Return the names that functions of a file read and do not define: its globals, also those that nothing binds."""
    codes, names = list[types.CodeType](), set[str]()
    with contextlib.suppress(SyntaxError, ValueError, OSError, InvalidInput):
        codes.append(compile(python_source(file), str(file), "exec"))
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        names |= {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names


def defined_names(file: Path) -> list[str]:
    """List functions and classes of a file or notebook without running it."""
    return [node.name for node, _ in definitions(file)]


def attention_candidates(file: Path) -> Iterator[str]:
    """Yield the functions and classes of a file that look like attention: a softmax and a product in one body."""
    for node, body in definitions(file):
        if node.name.startswith("test"):
            continue
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
