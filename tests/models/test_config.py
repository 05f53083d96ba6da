"""Model configs: roundtrip through plain data, and invalid configs are refused."""

import subprocess
import sys

import pytest
from tests.models.tiny_models import EVERYONE, stack

from peasy import config as settings
from peasy.errors import InvalidInput
from peasy.models import config as kinds
from peasy.models.config import read_config
from peasy.models.preset import presets
from peasy.nn import config as nn_config


@pytest.mark.parametrize("name", EVERYONE)
def test_config_roundtrip(name):
    assert read_config(settings.to_plain(EVERYONE[name])) == EVERYONE[name]


def test_preset_roundtrip():
    for preset in presets():
        assert read_config(settings.to_plain(preset.config)) == preset.config


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: kinds.DecoderConfig(0, 32, stack(), 64), "vocabulary is 0"),
        (lambda: kinds.DecoderConfig(9, 30, stack(), 64), "cannot be split into 4 heads"),
        (lambda: kinds.DecoderConfig(9, 32, stack()), "context is missing"),
        (lambda: kinds.DecoderConfig(9, 32, stack(), 64, dropout=1.0), "dropout is 1.0"),
        (lambda: kinds.DecoderConfig(9, 12, stack(), None, nn_config.RotaryConfig()), "need an even head width"),
        (lambda: kinds.EncoderConfig(9, 32, stack(), 64, pooling="pooler"), "the model has no pooler"),
        (lambda: kinds.NGramConfig(9, 0), "order is 0"),
        (lambda: kinds.NGramConfig(9, discount=1.0), "discount is 1.0"),
        (lambda: kinds.RecurrentTranslatorConfig(9, 31), "d_model is 31"),
        (lambda: kinds.ConvolutionConfig(9, 8, kernel_size=1), "width is 1"),
    ],
)
def test_invalid_configs_are_refused(make, said):
    with pytest.raises(InvalidInput, match=said) as caught:
        make()
    assert caught.value.hint


def test_unknown_kind_is_refused():
    with pytest.raises(InvalidInput, match="kind should be one of") as caught:
        read_config({"kind": "decoderr", "vocabulary": 5})
    assert caught.value.hint == "Did you mean decoder?"


def test_reading_a_config_imports_no_torch():
    code = "import sys; from peasy.models.preset import presets; presets(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
