"""The distribution is named peasy-attention: `peasy` on the package index is another project."""

import re
import tomllib

import pytest

from peasy.extras import _MODULES_OF_EXTRAS, DISTRIBUTION, EXTRAS

TELLS_TO_INSTALL = re.compile(
    r"""(?:\bpip[3\d.]*\b.*?\binstall|\bpip\s+download|\buv\s+(?:pip\s+install|add)|\bpipx\s+install)\b
        [^\n]*?[\s"'`]peasy(?![\w(-]|/|\.py)""",
    re.VERBOSE,
)
TEXT_FILES = (".py", ".md", ".toml", ".txt", ".js", ".yml", ".yaml", ".cff", "")
EXTRA_OF_THE_WRONG_PROJECT = re.compile(r"(?<![\w.-])peasy\[[a-z,]+\]")


def wrong_names(text: str) -> list[str]:
    """Return the lines that tell to install `peasy` by that name."""
    lines = text.splitlines()
    return [line for line in lines if TELLS_TO_INSTALL.search(line) or EXTRA_OF_THE_WRONG_PROJECT.search(line)]


def test_the_name_in_pyproject(root):
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["name"] == DISTRIBUTION


def test_no_text_tells_anyone_to_install_another_project(root):
    folders = (root / name for name in ("src", "tests", "docs", "bench", ".github"))
    files = [path for folder in folders for path in folder.rglob("*")] + list(root.iterdir())
    for path in files:
        if path.is_file() and path.suffix in TEXT_FILES and path.name != "test_distribution.py":
            assert not wrong_names(path.read_text(encoding="utf-8", errors="replace")), path


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("pip install peasy", True),
        ('pip install "peasy[models]"', True),
        ("python -m pip install --upgrade peasy", True),
        ("uv add peasy", True),
        ("needs the extra peasy[plots]", True),
        ("pip install peasy-attention", False),
        ('pip install "peasy-attention[models]"', False),
        ("pip install -c constraints.txt .", False),
        ("after pip install, run .venv/bin/peasy demo", False),
    ],
)
def test_a_wrong_name_is_found(line, is_wrong):
    assert bool(wrong_names(line)) == is_wrong


def test_every_extra_lists_the_modules_it_brings(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(_MODULES_OF_EXTRAS) <= set(extras)
    assert set(re.findall(r"[a-z]+", extras["all"][0].partition("[")[2])) == set(_MODULES_OF_EXTRAS)
    assert EXTRAS["torch"] == "models"
