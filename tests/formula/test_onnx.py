"""All Attention cases of the ONNX node tests, on NumPy and torch, judged by the suite's own comparison.

The adapter below is thin on purpose: it unpacks the operator's inputs into what `attend` takes, and casts back.
"""

import warnings

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx.backend.test.runner import Runner

from peasy import attend
from peasy.formula.heads import merge_heads, split_heads

N_CASES = 93


@pytest.fixture(scope="module")
def cases():
    from onnx.backend.test.case.node import collect_testcases  # takes seconds: it builds the cases of all operators

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [case for case in collect_testcases("Attention") if "expanded" not in case.name]


def test_there_are_93_cases(cases):
    assert len(cases) == N_CASES


@pytest.mark.parametrize("number", range(N_CASES))
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_case(cases, number, backend):
    case = cases[number]
    ((inputs, expected),) = case.data_sets
    (node,) = case.model.graph.node
    named = dict(zip((name for name in node.input if name), inputs, strict=True))
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    output_names = [name for name in node.output if name]
    actual = run_attention(named, attributes, {"numpy": np.asarray, "torch": to_torch}[backend])
    Runner.assert_similar_outputs(
        expected, [actual[name] for name in output_names], rtol=case.rtol, atol=case.atol, model_dir=case.name
    )


def test_cases_detect_another_formula(cases, monkeypatch):
    """With another scale than 1/√d_k, every case without an explicit scale fails."""
    monkeypatch.setattr("peasy.formula.scoring.ScaledDotProduct.scale", lambda self, d_key: 0.1)
    detected = 0
    for number in range(20):
        try:
            test_case(cases, number, "numpy")
        except AssertionError:
            detected += 1
    assert detected >= 15


def run_attention(inputs, attributes, put):
    """Compute the outputs of the ONNX operator by name with `attend`, on arrays made by `put`."""
    q, k, v = (
        by_head(inputs[name], attributes.get(f"{heads}_num_heads"))
        for name, heads in (("Q", "q"), ("K", "kv"), ("V", "kv"))
    )
    if "past_key" in inputs:
        k, v = (np.concatenate((inputs[name], new), axis=2) for name, new in (("past_key", k), ("past_value", v)))
    mask, bias = onnx_mask(inputs, attributes, q.shape[2], k.shape[2]), None
    if "attn_mask" in inputs:
        attn_mask = padded(inputs["attn_mask"], k.shape[2])
        mask, bias = (mask & attn_mask, None) if attn_mask.dtype == bool else (mask, attn_mask)
    if attributes.get("softmax_precision") == onnx.TensorProto.DOUBLE:
        q, k, v = (array.astype(np.float64) for array in (q, k, v))

    steps = attend(
        put(q), put(k), put(v),
        mask=put(mask), bias=None if bias is None else put(bias),
        scale=attributes.get("scale"), softcap=attributes.get("softcap"),
    )  # fmt: skip
    modes = (steps.scaled, steps.scaled, steps.masked, steps.weights)
    context = steps.context if inputs["Q"].ndim == 4 else merge_heads(torch if put is to_torch else np, steps.context)
    outputs = {"Y": context, "qk_matmul_output": modes[attributes.get("qk_matmul_output_mode", 0)]}
    back = {name: np.asarray(output).astype(inputs["Q"].dtype) for name, output in outputs.items()}
    return back | {"present_key": k, "present_value": v}


def onnx_mask(inputs, attributes, n_query, n_key):
    """Combine causal, window and padding masks; the position of the first query depends on the case."""
    length = inputs.get("nonpad_kv_seqlen")
    if length is None:
        start = inputs["past_key"].shape[2] if "past_key" in inputs else 0
    else:
        start = (length - n_query)[:, None, None, None]
    query, key = np.arange(n_query)[:, None] + start, np.arange(n_key)
    left, right = (attributes.get(f"{side}_window_size", -1) for side in ("left", "right"))
    allowed = np.ones(np.broadcast_shapes(np.shape(query), key.shape), bool)
    for applies, condition in (
        (attributes.get("is_causal"), key <= query),
        (left >= 0, query - key <= left),
        (right >= 0, key - query <= right),
        (length is not None, key < (n_key if length is None else length[:, None, None, None])),
    ):
        allowed = allowed & condition if applies else allowed
    return allowed


def by_head(array, heads):
    return split_heads(np, array, heads) if array.ndim == 3 else array


def padded(mask, n_key):
    """Pad a mask that is too short; missing keys are masked."""
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, n_key - mask.shape[-1])]
    return np.pad(mask, missing, constant_values=False if mask.dtype == bool else -np.inf)


def to_torch(array):
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))
