"""The wheel that `python -m build` makes: its name, its contents, and that it runs away from the source tree."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser

import pytest

from peasy import __version__
from peasy.extras import DISTRIBUTION

PACKAGE_DATA = (
    "peasy/py.typed",
    "peasy/render/fonts/DejaVuSans.ttf",
    "peasy/render/fonts/DejaVuSans-Bold.ttf",
    "peasy/render/fonts/LICENSE",
    "peasy/render/web/numbers.js",
    "peasy/server/studio/index.html",
    "peasy/worked/library/i-love-ai.toml",
    "peasy/models/built_in/recipes.toml",
    "peasy/models/built_in/stories/config.json",
    "peasy/models/presets/gpt2.toml",
)
MAX_BYTES = 25_000_000


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The wheel, built without the network."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)]
    built = subprocess.run(command, cwd=out, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel):
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_name_of_the_distribution(wheel):
    assert wheel.name == f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"
    assert wheel.stat().st_size < MAX_BYTES


def test_every_file_of_the_package_is_in_it_and_nothing_else(names, root):
    source = root / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "peasy").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name and not name.endswith((".pyc", ".nbi", ".nbc"))}
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == files
    assert set(PACKAGE_DATA) <= packed


def test_the_metadata(wheel, names):
    (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    about = Parser().parsestr(zipfile.ZipFile(wheel).read(metadata).decode())
    assert about["Name"] == DISTRIBUTION
    assert about["Requires-Python"] == ">=3.11"
    assert about["License-Expression"] == "Apache-2.0"
    assert len(about.get_all("Project-URL")) >= 3
    core = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert len(core) == 7
    readme = about.get_payload()
    assert "](docs/" not in readme  # relative links lead nowhere on the package index
    assert "](https://raw.githubusercontent.com/" in readme
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_runs_from_the_wheel(wheel, tmp_path):
    """Python reads packages from a wheel's files once they are unpacked; the source tree is not on the path."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "site")}
    code = "import peasy, sys; assert 'site' in peasy.__file__, peasy.__file__; from peasy.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True,
        encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "0.4011" in ran.stdout
