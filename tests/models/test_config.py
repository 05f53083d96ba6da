"""Model configs: roundtrip through plain data, and invalid configs are refused."""

import subprocess
import sys

import pytest
from tests.models.tiny_models import ALL_MODELS, stack

from peasy import config as reader
from peasy.errors import InvalidInput
from peasy.models import config as model_config
from peasy.models.config import read_config
from peasy.models.preset import presets
from peasy.nn import config as nn_config


@pytest.mark.parametrize("name", ALL_MODELS)
def test_config_roundtrip(name):
    assert read_config(reader.to_plain(ALL_MODELS[name])) == ALL_MODELS[name]


def test_preset_roundtrip():
    for preset in presets():
        assert read_config(reader.to_plain(preset.config)) == preset.config


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model_config.DecoderConfig(0, 32, stack(), 64), "vocab_size is 0"),
        (lambda: model_config.DecoderConfig(9, 30, stack(), 64), "cannot be split into 4 heads"),
        (lambda: model_config.DecoderConfig(9, 32, stack()), "max_seq_len is missing"),
        (lambda: model_config.DecoderConfig(9, 32, stack(), 64, dropout=1.0), "dropout is 1.0"),
        (lambda: model_config.DecoderConfig(9, 12, stack(), None, nn_config.RotaryConfig()), "need an even head width"),
        (lambda: model_config.EncoderConfig(9, 32, stack(), 64, pooling="pooler"), "the model has no pooler"),
        (lambda: model_config.NGramConfig(9, 0), "order is 0"),
        (lambda: model_config.NGramConfig(9, discount=1.0), "discount is 1.0"),
        (lambda: model_config.RecurrentTranslatorConfig(9, 31), "d_model is 31"),
        (lambda: model_config.ConvolutionConfig(9, 8, kernel_size=1), "kernel_size is 1"),
    ],
)
def test_invalid_configs_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        make()
    assert caught.value.hint


def test_unknown_kind_is_refused():
    with pytest.raises(InvalidInput, match="kind should be one of") as caught:
        read_config({"kind": "decoderr", "vocab_size": 5})
    assert caught.value.hint == "Did you mean decoder?"


def test_reading_a_config_imports_no_torch():
    code = "import sys; from peasy.models.preset import presets; presets(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
