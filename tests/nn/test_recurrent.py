"""Recurrent layers: bfloat16 training on a CPU without bfloat16 instructions."""

import os
import subprocess
import sys

TRAIN_STEP = """
import torch
from peasy.nn.functional import HAS_BFLOAT16
from peasy.nn.recurrent import Recurrent
from peasy.training.learner import choose_precision

assert not HAS_BFLOAT16 and choose_precision("auto") == "float32"
for cell in ("lstm", "gru"):
    layer = Recurrent(cell, 4, 8, 1, 0.0)
    x, mask = torch.randn(2, 3, 4), torch.tensor([[True, True, True], [True, False, False]])
    expected, state = layer(x, None, mask)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, state = layer(x.bfloat16(), None, mask)
        outputs, state = layer(x.bfloat16(), state)
    outputs.sum().backward()
    assert torch.isfinite(layer.cell.weight_ih_l0.grad).all()
    with torch.autocast("cpu", torch.bfloat16):
        outputs, _ = layer(x, None, mask)
    assert torch.allclose(outputs.float(), expected, atol=1e-5), cell
"""


def test_bfloat16_training_works_without_bfloat16_instructions() -> None:
    """OneDNN has no bfloat16 LSTM for such a CPU; its environment variable makes any CPU one of them."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    run = subprocess.run([sys.executable, "-c", TRAIN_STEP], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
