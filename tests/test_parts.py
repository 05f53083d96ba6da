"""Parts that may be absent: who brings them, and what is said when they are not there."""

import sys
import tomllib
from pathlib import Path

import pytest

from peasy.errors import MissingPart
from peasy.parts import EXTRAS, missing, need


def test_every_extra_that_is_named_exists():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_a_part_that_is_there_is_imported():
    assert need("json").loads("[1]") == [1]


@pytest.mark.parametrize("name", ["torch", "torch.nn"])
def test_a_part_that_is_not_there_says_how_to_get_it(monkeypatch, name):
    for module in ("torch", "torch.nn"):  # another test may have imported both
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingPart) as caught:
        need(name)
    assert caught.value.hint == 'pip install "peasy[models]"'
    assert caught.value.exit_code == 5


def test_a_part_that_is_there_and_broken_is_not_hidden(monkeypatch, tmp_path):
    (tmp_path / "halfway.py").write_text("import something_else_entirely\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_entirely"):
        need("halfway")


def test_a_part_of_no_extra():
    assert missing("somelib.inner").hint == "pip install somelib"
