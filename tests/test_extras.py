"""Optional dependencies: their extras, and the error if one is missing."""

import sys
import tomllib
from pathlib import Path

import pytest

from peasy.errors import MissingExtra
from peasy.extras import EXTRAS, missing_extra, require_extra


def test_every_extra_exists():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_installed_module_is_imported():
    assert require_extra("json").loads("[1]") == [1]


@pytest.mark.parametrize("name", ["torch", "torch.nn"])
def test_missing_module_has_an_install_hint(monkeypatch, name):
    for module in ("torch", "torch.nn"):  # another test may have imported both
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        require_extra(name)
    assert caught.value.hint == 'pip install "peasy-attention[models]"'
    assert caught.value.exit_code == 5


def test_broken_module_raises_its_own_error(monkeypatch, tmp_path):
    (tmp_path / "halfway.py").write_text("import something_else_entirely\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_else_entirely"):
        require_extra("halfway")


def test_module_without_an_extra():
    assert missing_extra("somelib.inner").hint == "pip install somelib"
