"""`peasy version`."""

from importlib import metadata

from peasy import __version__


def test_versions_of_peasy_and_dependencies(peasy):
    assert peasy("version").out.startswith(f"peasy {__version__}\n")
    result = peasy("version", "--json").json["result"]
    assert result["peasy"] == __version__
    assert result["numpy"] == metadata.version("numpy")


def test_missing_dependency(peasy, monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "not installed" in peasy("version").out
