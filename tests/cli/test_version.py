"""`peasy version`."""

from importlib import metadata

from peasy import __version__


def test_it_names_itself_and_what_it_stands_on(peasy):
    assert peasy("version").out.startswith(f"peasy {__version__}\n")
    told = peasy("version", "--json").json["result"]
    assert told["peasy"] == __version__
    assert told["numpy"] == metadata.version("numpy")


def test_what_is_absent_is_said(peasy, monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "not installed" in peasy("version").out
