"""PNG output."""

import builtins
import struct

import pytest

from peasy.errors import MissingExtra
from peasy.render import svg


def test_a_png_has_twice_the_size_of_the_svg(worked):
    drawn = svg.draw_png(worked)
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", drawn[16:24])
    text = svg.draw(worked)
    assert f'width="{width // 2}" height="{height // 2}"' in text


def test_missing_extra_is_an_error_with_install_hint(worked, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "vl_convert":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra) as caught:
        svg.draw_png(worked)
    assert caught.value.exit_code == 5
    assert 'pip install "peasy[plots]"' in caught.value.hint
