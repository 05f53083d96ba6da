"""A layer of a model on paper: every step has the numbers that the model itself computes, for every kind of block."""

import numpy as np
import pytest
from tests.models.tiny_models import TRANSFORMERS, make, some_ids

from peasy.commands.model_example import LayerCapture, find_stack, layer_example
from peasy.inspection.forward import ModelInput, default_stack, forward_hidden
from peasy.nn.tap import HEAD_STEPS, Tap
from peasy.worked import solve

ACCURACY = 3e-5
"""Float32 in the model, float64 on paper."""


def capture_all(model, model_input):
    """Return every step that the model computes, by (stack, layer, part) and name."""
    steps = {}

    def keep(activation):
        steps[(*activation.path, activation.step)] = activation.array[0].double().numpy()

    forward_hidden(model, model_input, Tap(keep, steps=("residual", "normed", "activation", "output", *HEAD_STEPS)))
    return steps


def paper_names(stack, layer, part, step, heads):
    """Return the nodes that may hold a step of the model, by head (None: all), the last one in the graph first."""
    scope = f"layer{layer}.{part.replace('feedforward', 'feed_forward')}"
    if step == "activation":
        return {None: [f"{scope}.gated", f"{scope}.activated"]}
    return {
        head: [f"{scope}.head-{head + 1}.{form}{step}" for form in ("rotated_", "normed_", "")] for head in range(heads)
    }


def compare(worked, names, values):
    name = next(name for name in names if name in worked.values)
    np.testing.assert_allclose(worked.values[name], values, rtol=ACCURACY, atol=ACCURACY, err_msg=name)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_step_of_a_layer_is_that_of_the_model(name):
    model = make(TRANSFORMERS[name], seed=2)
    source, tokens = some_ids(1, 7)[0].tolist(), some_ids(1, 5, seed=9)[0].tolist()
    both = model.is_encoder_decoder
    model_input = ModelInput(tuple(source), tuple(tokens)) if both else ModelInput(tuple(source))
    steps = capture_all(model, model_input)
    for stack in ("encoder", "decoder") if both else (default_stack(model),):
        ids = tokens if both and stack == "decoder" else source
        labels = tuple(map(str, source)) if both and stack == "decoder" else ()
        for layer in range(2):
            blocks, captured = find_stack(model, stack), LayerCapture(model, model_input, stack, layer)
            worked = solve(layer_example(blocks, layer, captured, tuple(map(str, ids)), labels))
            compared = 0
            for (of_stack, of_layer, part, step), values in steps.items():
                if (of_stack, of_layer) != (stack, layer) or step in ("residual", "normed", "output"):
                    continue
                for head, names in paper_names(stack, layer, part, step, blocks.settings.attention.num_heads).items():
                    own = values if head is None else values[head * len(values) // blocks.settings.attention.num_heads]
                    compare(worked, names, own)
                    compared += 1
            assert compared > 8 * 4
            compare(worked, [worked.steps[-1].name], steps[(stack, layer + 1, "stream", "residual")])
