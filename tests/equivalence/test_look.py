"""`peasy.look` on a transformers model shows the same attention as transformers, for every family, to 1e-5."""

import re

import numpy as np
import torch

from peasy.commands.look import look

CLOSE = {"atol": 1e-5, "rtol": 0}
IDS, TARGET = [7, 31, 5, 5, 44, 12, 9], [4, 17, 30, 8]


def ids(values: list[int]) -> torch.Tensor:
    return torch.tensor([values])


def test_decoders(decoder):
    with torch.no_grad():
        expected = decoder.theirs(ids(IDS), output_attentions=True).attentions
    result = look(decoder.theirs, IDS)
    assert result.weights.layers == tuple(range(len(expected)))
    for layer, weights in enumerate(expected):
        for head in range(weights.shape[1]):
            np.testing.assert_allclose(result.weights[layer, head], weights[0, head].numpy(), **CLOSE)


def test_encoders(encoder):
    with torch.no_grad():
        expected = encoder.theirs(ids(IDS), output_attentions=True).attentions
    result = look(encoder.theirs, IDS)
    np.testing.assert_allclose(np.asarray(result.weights), torch.stack(expected)[:, 0].numpy(), **CLOSE)


def test_translators(translator):
    """All three kinds of attention; the target is given as ids, so that nothing is generated first."""
    from peasy.commands.load import load
    from peasy.inspection.capture import CaptureSpec, Recorder
    from peasy.inspection.forward import ModelInput, forward_logits

    loaded = load(translator.theirs)
    inputs = ModelInput(tuple(IDS), tuple(TARGET))
    recorder = Recorder(CaptureSpec(), inputs.lengths(loaded.model))
    forward_logits(loaded.model, inputs, recorder.tap())
    with torch.no_grad():
        expected = translator.theirs(input_ids=ids(IDS), decoder_input_ids=ids(TARGET), output_attentions=True)
    for capture in tuple(recorder.captured.values()):
        stack, layer, part = capture.path
        theirs = expected.cross_attentions if part == "cross_attention" else getattr(expected, f"{stack}_attentions")
        np.testing.assert_allclose(capture.array, theirs[layer][0].numpy(), **CLOSE)


def test_weights_are_shared_without_copies(family, monkeypatch):
    """For every family the tensors share memory, as views where they are transposed or split."""
    from peasy.commands.load import load

    monkeypatch.setattr(type(family.theirs), "save_pretrained", lambda *args, **kwargs: 1 / 0)
    ours = load(family.theirs).model
    pointers = {tensor.untyped_storage().data_ptr() for tensor in family.theirs.state_dict().values()}
    copied = [name for name, tensor in ours.state_dict().items() if tensor.untyped_storage().data_ptr() not in pointers]
    if re.match("neox|falcon", family.name):  # queries, keys and values alternate head by head: no view has one of them
        copied = [name for name in copied if not re.search(r"attention\.(query|key|value)\.", name)]
    assert len(copied) <= 1, "at most a bias that no layer of theirs has is made anew"
