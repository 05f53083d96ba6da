"""Mutated config.json: an error that names the field, never a crash, a hang or a huge allocation."""

import json
import random
import time

import pytest

from peasy.checkpoint.huggingface import read_folder, write_folder
from peasy.errors import PeasyError
from peasy.models.build import build
from peasy.models.config import EncoderConfig, EncoderDecoderConfig
from peasy.models.preset import preset
from peasy.nn import config as nn_config

VALUES = [None, True, False, 0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**63, 10**30, 0.5, -0.5, 1e300, "", "relu", "x" * 10_000]
VALUES += [[], [1], {}, {"a": 1}, [[1]], {"rope_type": "yarn"}, {"rope_type": 5}, ["sliding_attention"]]
ATTENTION = nn_config.AttentionConfig(2, bias=False, output_bias=False, scale=1.0)
STACK = nn_config.StackConfig(1, ATTENTION, nn_config.MLPConfig(20, "relu", bias=False), nn_config.RMSNormConfig())
T5 = EncoderDecoderConfig(
    vocab_size=31,
    d_model=12,
    encoder=STACK,
    decoder=STACK,
    position=nn_config.RelativeBiasConfig(),
    lm_head=nn_config.LMHeadConfig(scaled=True),
)
MARIAN = EncoderDecoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=9,
    encoder=nn_config.StackConfig(
        1, nn_config.AttentionConfig(2), nn_config.MLPConfig(20), nn_config.LayerNormConfig("post")
    ),
    decoder=nn_config.StackConfig(
        1, nn_config.AttentionConfig(2), nn_config.MLPConfig(20), nn_config.LayerNormConfig("post")
    ),
    position=nn_config.SinusoidalPositionConfig("halves"),
)
BERT = EncoderConfig(
    vocab_size=31,
    d_model=12,
    max_seq_len=9,
    stack=nn_config.StackConfig(
        1, nn_config.AttentionConfig(2), nn_config.MLPConfig(20), nn_config.LayerNormConfig("post")
    ),
    embedding=nn_config.EmbeddingConfig(segments=2, norm=True),
)
MODELS = {"t5": T5, "marian": MARIAN, "bert": BERT}
MODELS |= {name: preset(name) for name in ("gpt-tiny", "llama-tiny")}


@pytest.mark.parametrize("name", MODELS)
def test_mutated_settings(tmp_path, name):
    config = MODELS[name]
    folder = write_folder(tmp_path / "m", config, build(config, seed=1).state_dict())
    original, rng = json.loads((folder / "config.json").read_text()), random.Random(7)
    loaded, slowest, longest = 0, 0.0, 0
    for _ in range(200):
        broken = dict(original)
        for _ in range(rng.choice([1, 1, 2])):
            broken[rng.choice([*original, "architectures", "rope_scaling", "layer_types"])] = rng.choice(VALUES)
        (folder / "config.json").write_text(json.dumps(broken))
        started = time.process_time()
        try:
            loaded += bool(read_folder(folder).config)
        except PeasyError as error:
            longest = max(longest, len(error.message))
        slowest = max(slowest, time.process_time() - started)
    assert slowest < 5
    assert longest < 1000
    assert loaded < 150  # most of these must be refused
