"""Forward and backward of every step and block on paper: equal to torch autograd, finite differences, and
array-api-strict; the displayed arithmetic of every cell evaluates to it."""

import dataclasses

import array_api_strict
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.worked.test_arithmetic import check

from peasy.errors import InvalidInput
from peasy.worked import intervals, load_example, read_example, solve
from peasy.worked.builder import related_name
from peasy.worked.intervals import Interval
from peasy.worked.operations import Multiply
from peasy.worked.solver import train_steps

ACTIVATIONS = {
    "relu": F.relu, "relu_squared": lambda x: F.relu(x) ** 2,
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "exp": torch.exp, "square": torch.square,
    "complement": lambda x: 1 - x,
}  # fmt: skip
WORDS = ("the", "cat", "sat", "mat", "on")


class Case:
    """A random example and the same computation in torch: `steps` give `out`, `torch_out` gives it, too."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.given, self.steps, self.settings = {}, {}, {}

    def matrix(self, name, *shape, positive=False):
        values = self.rng.normal(size=shape) * 0.7
        self.given[name] = abs(values) + 0.1 if positive else values

    def size(self, low=1, high=4):
        return int(self.rng.integers(low, high + 1))

    def norm(self, scope, width):
        self.matrix(f"{scope}.gain", width)
        self.matrix(f"{scope}.bias", width)

    def attention(self, scope, width, heads=1, kv_heads=None, biases=True, source=None):
        head, kv_heads = self.size(1, 3), kv_heads or heads
        for letter, columns in zip("qkv", (heads * head, kv_heads * head, kv_heads * head), strict=True):
            self.matrix(f"{scope}.w_{letter}", (source if source and letter != "q" else width), columns)
            if biases:
                self.matrix(f"{scope}.b_{letter}", columns)
        self.matrix(f"{scope}.w_o", heads * head, width)

    def feed_forward(self, scope, width, gated=False):
        hidden = self.size(1, 5)
        self.matrix(f"{scope}.w_1", width, hidden)
        self.matrix(f"{scope}.b_1", hidden)
        self.matrix(f"{scope}.w_2", hidden, width)
        self.matrix(f"{scope}.b_2", width)
        if gated:
            self.matrix(f"{scope}.w_3", width, hidden)
            self.matrix(f"{scope}.b_3", hidden)


def nested(flat):
    tree = {}
    for name, values in flat.items():
        *path, last = name.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[last] = values
    return tree


def layer_norm(p, scope, x, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], p[f"{scope}.gain"][0], p[f"{scope}.bias"][0], eps)


def attention(p, scope, x, source=None, heads=1, causal=False, softcap=None, mask=None, bias=None):
    """Attention with torch's own softmax, head by head."""
    source = x if source is None else source
    q, k, v = (
        (x if letter == "q" else source) @ p[f"{scope}.w_{letter}"] + p.get(f"{scope}.b_{letter}", torch.zeros(1))
        for letter in "qkv"
    )
    d = q.shape[1] // heads
    group = heads // (k.shape[1] // d)
    contexts = []
    for head in range(heads):
        own, shared = slice(head * d, (head + 1) * d), slice(head // group * d, (head // group + 1) * d)
        qh, kh = q[:, own], k[:, shared]
        if bias == "rotary":
            qh, kh = rotate(qh), rotate(kh)
        scores = qh @ kh.T / d**0.5
        scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
        if bias == "alibi":
            distance = (torch.arange(len(q))[:, None] - torch.arange(len(k))[None]).abs()
            scores = scores - 2.0 ** (-8 * (head + 1) / heads) * distance
        if causal:
            scores = scores.masked_fill(~torch.ones(scores.shape, dtype=torch.bool).tril(), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~torch.tensor(mask), -torch.inf)
        if f"{scope}.sinks" in p:
            sink = p[f"{scope}.sinks"][0, head].expand(len(q), 1)
            weights = torch.softmax(torch.cat([scores, sink], 1), -1)[:, :-1]
        else:
            weights = torch.softmax(scores, -1)
        contexts.append(weights @ v[:, shared])
    out = torch.cat(contexts, 1)
    return out @ p[f"{scope}.w_o"] if f"{scope}.w_o" in p else out


def rotate(x):
    """Rotary positions by complex numbers: pairs (i, i + d/2)."""
    half = x.shape[1] // 2
    angles = torch.arange(len(x))[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], 1)


def feed_forward(p, scope, x, activation):
    hidden = ACTIVATIONS[activation](x @ p[f"{scope}.w_1"] + p[f"{scope}.b_1"])
    if f"{scope}.w_3" in p:
        hidden = hidden * (x @ p[f"{scope}.w_3"] + p[f"{scope}.b_3"])
    return hidden @ p[f"{scope}.w_2"] + p[f"{scope}.b_2"]


def transformer_block(p, scope, x, memory=None, *, norm="pre", heads=1, causal=False, activation="relu"):
    parts = [("attention", lambda y: attention(p, f"{scope}.attention", y, heads=heads, causal=causal))]
    if memory is not None:
        parts.append(("cross", lambda y: attention(p, f"{scope}.cross_attention", y, memory, heads=heads)))
    parts.append(("feed_forward", lambda y: feed_forward(p, f"{scope}.feed_forward", y, activation)))
    for number, (_, part) in enumerate(parts, start=1):
        name = f"{scope}.norm{number}"
        x = x + part(layer_norm(p, name, x)) if norm == "pre" else layer_norm(p, name, x + part(x))
    return x


def add_transformer_block(c, scope, width, heads, memory=None):
    c.attention(f"{scope}.attention", width, heads)
    if memory:
        c.attention(f"{scope}.cross_attention", width, heads, source=memory)
    c.feed_forward(f"{scope}.feed_forward", width)
    for number in range(1, 4 if memory else 3):
        c.norm(f"{scope}.norm{number}", width)


def case_activation(c):
    name = c.rng.choice(list(ACTIVATIONS))
    c.matrix("x", c.size(), c.size())
    c.steps["out"] = f"{name}(x)"
    return lambda p: ACTIVATIONS[name](p["x"])


def case_log_and_products(c):
    n, d = c.size(), c.size()
    c.matrix("x", n, d, positive=True)
    c.matrix("y", n, d)
    c.matrix("row", d)
    c.matrix("column", n, 1)
    c.steps |= {"l": "log(x)", "m": "multiply(l, y)", "r": "multiply(m, row)", "k": "multiply(r, column)",
                "t": "transpose(k)", "s": "add(t, t)", "u": "transpose(s)", "w": "add(u, row)", "j": "concat(w, y)",
                "v": "mean(j)", "out": "multiply(j, v)"}  # fmt: skip

    def torch_out(p):
        m = torch.log(p["x"]) * p["y"] * p["row"] * p["column"]
        j = torch.cat([2 * m + p["row"], p["y"]], 1)
        return j * j.mean(1, keepdim=True)

    return torch_out


def case_sums_and_transposed_products(c):
    n, d, k = c.size(), c.size(), c.size()
    c.matrix("x", n, d)
    c.matrix("w", k, d)
    c.steps |= {"h": "project_transposed(x, w)", "s": "sum(h)", "out": "add(h, s)"}
    return lambda p: p["x"] @ p["w"].T + (p["x"] @ p["w"].T).sum(1, keepdim=True)


def case_layer_norm(c):
    d = c.size(2, 5)
    c.matrix("x", c.size(), d)
    c.norm("out", d)
    c.steps["out"] = "layer_norm(x, eps=0.001)"
    return lambda p: layer_norm(p, "out", p["x"], 1e-3)


def case_rms_norm(c):
    d = c.size(2, 5)
    c.matrix("x", c.size(), d)
    c.matrix("out.gain", d)
    c.steps["out"] = "rms_norm(x, eps=0.001)"
    return lambda p: F.rms_norm(p["x"], (d,), p["out.gain"][0], 1e-3)


def case_feed_forward(c):
    d, name = c.size(), c.rng.choice(["relu", "gelu", "gelu_tanh", "silu"])
    c.matrix("x", c.size(), d)
    c.feed_forward("out", d, gated=bool(c.size(0, 1)))
    c.steps["out"] = f"feed_forward(x, activation={name})"
    return lambda p: feed_forward(p, "out", p["x"], name)


def case_attention(c):
    d, heads = c.size(), c.size(1, 2) * 2
    causal, softcap = bool(c.size(0, 1)), [None, 1.5][c.size(0, 1)]
    c.matrix("x", c.size(), d)
    c.attention("out", d, heads, kv_heads=c.size(1, 2))
    if c.size(0, 1):
        c.matrix("out.sinks", heads)
    cap = f", softcap={softcap}" if softcap else ""
    c.steps["out"] = f"attention(x, heads={heads}, causal={str(causal).lower()}{cap})"
    return lambda p: attention(p, "out", p["x"], heads=heads, causal=causal, softcap=softcap)


def case_attention_mask(c):
    n, d = c.size(2, 4), c.size()
    mask = (c.rng.random((n, n)) < 0.6) | np.eye(n, dtype=bool)
    c.matrix("x", n, d)
    c.attention("out", d)
    c.steps["out"] = f"attention(x, mask={str(mask.tolist()).lower()})"
    return lambda p: attention(p, "out", p["x"], mask=mask)


def case_cosine_and_division(c):
    c.matrix("x", c.size(2, 4), 3, positive=True)
    c.steps["out"] = "attention(x, scoring=cosine, normalise=sum)"

    def torch_out(p):
        scores = F.cosine_similarity(p["x"][:, None], p["x"][None], dim=-1)
        return scores / scores.sum(1, keepdim=True) @ p["x"]

    return torch_out


def case_positions_in_attention(c):
    kind, heads = c.rng.choice(["rotary", "alibi"]), c.size(1, 2)
    c.matrix("x", c.size(1, 4), 3)
    for letter in "qkv":
        c.matrix(f"out.w_{letter}", 3, 4 * heads)
    c.steps["out"] = f"attention(x, positions={kind}, heads={heads}, causal=true)"
    return lambda p: attention(p, "out", p["x"], heads=heads, causal=True, bias=kind)


def case_attention_of_models(c):
    """Shifted tokens, norms of queries and keys, partial rotary positions with given frequencies, relative bias."""
    n, heads, width, d = c.size(1, 3), c.size(1, 2), c.size(2, 4), 5
    kind, over = c.rng.choice(["rms", "layer"]), c.rng.choice(["head", "projection"])
    columns = d if over == "head" else heads * d
    c.matrix("x", n, width)
    for letter in "qkv":
        c.matrix(f"out.w_{letter}", width, heads * d)
    for side in ("query", "key"):
        c.matrix(f"out.{side}_gain", columns)
        if kind == "layer":
            c.matrix(f"out.{side}_bias", columns)
    c.matrix("out.frequency", 2, positive=True)
    names = [f"out.head-{head + 1}.position_bias" if heads > 1 else "out.position_bias" for head in range(heads)]
    for name in names:
        c.matrix(name, n, n)
    norm = f"{{'norm': '{kind}', 'eps': 0.01, 'over': '{over}'}}"
    settings = f"heads={heads}, positions=rotary, rotary_factor=1.5, qk_norm={norm}"
    c.steps |= {"shift": "token_shift(x)", "out": f"attention(shift, {settings})"}

    def normed(p, side, x):
        gain = p[f"out.{side}_gain"][0]
        if kind == "rms":
            return F.rms_norm(x, (columns,), gain, 0.01)
        return F.layer_norm(x, (columns,), gain, p[f"out.{side}_bias"][0], 0.01)

    def turned(x, angles):
        left, right, rest = x[:, :2], x[:, 2:4], x[:, 4:]
        cos, sin = 1.5 * torch.cos(angles), 1.5 * torch.sin(angles)
        return torch.cat([left * cos - right * sin, right * cos + left * sin, rest], 1)

    def torch_out(p):
        half, x = width // 2, p["x"]
        x = torch.cat([torch.cat([torch.zeros(1, half), x[:-1, :half]]), x[:, half:]], 1)
        q, k, v = (x @ p[f"out.w_{letter}"] for letter in "qkv")
        if over == "projection":
            q, k = normed(p, "query", q), normed(p, "key", k)
        angles = torch.arange(n)[:, None] * p["out.frequency"].detach()
        contexts = []
        for name, qh, kh, vh in zip(names, *(array.split(d, 1) for array in (q, k, v)), strict=True):
            if over == "head":
                qh, kh = normed(p, "query", qh), normed(p, "key", kh)
            scores = turned(qh, angles) @ turned(kh, angles).T / d**0.5 + p[name]
            contexts.append(torch.softmax(scores, -1) @ vh)
        return torch.cat(contexts, 1)

    return torch_out


def case_cross_attention(c):
    d, other = c.size(), c.size()
    c.matrix("x", c.size(), d)
    c.matrix("memory", c.size(), other)
    c.attention("out", d, 2, source=other)
    c.steps["out"] = "attention(x, memory, heads=2)"
    return lambda p: attention(p, "out", p["x"], p["memory"], heads=2)


def case_embedding_and_positions(c):
    c.settings |= {"tokens": ["cat", "the", "cat"], "vocabulary": list(WORDS)}
    d, kind = c.size(1, 3) * 2, c.rng.choice(["learned", "sinusoidal"])
    c.matrix("e.table", len(WORDS), d)
    if kind == "learned":
        c.matrix("out.table", 4, d)
    c.steps |= {"e": "embedding()", "out": f"positions(e, encoding={kind})"}

    def torch_out(p):
        x = F.embedding(torch.tensor([1, 0, 1]), p["e.table"])
        if kind == "learned":
            return x + p["out.table"][:3]
        angles = torch.arange(3)[:, None] / 10000.0 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)

    return torch_out


def case_rnn(c):
    d, hidden = c.size(), c.size()
    c.matrix("x", 1, d)
    c.matrix("h", 1, hidden)
    add_gates(c, "out", "h", d, hidden)
    c.steps["out"] = "rnn_step(x, h)"
    return lambda p: torch.rnn_tanh_cell(p["x"], p["h"], *stacked(p, "out", "h"))


def add_gates(c, scope, gates, d, hidden):
    for gate in gates:
        c.matrix(f"{scope}.w_{gate}", d, hidden)
        c.matrix(f"{scope}.u_{gate}", hidden, hidden)
        c.matrix(f"{scope}.b_{gate}", hidden)
        c.matrix(f"{scope}.c_{gate}", hidden)


def stacked(p, scope, gates):
    """Weights as torch's cells take them: gates one below the other."""
    weights = [torch.cat([p[f"{scope}.{kind}_{gate}"].T for gate in gates]) for kind in "wu"]
    return *weights, *(torch.cat([p[f"{scope}.{kind}_{gate}"][0] for gate in gates]) for kind in "bc")


def case_gru(c):
    d, hidden = c.size(), c.size()
    c.matrix("x", 1, d)
    c.matrix("h", 1, hidden)
    add_gates(c, "out", "rzn", d, hidden)
    c.steps["out"] = "gru_step(x, h)"
    return lambda p: torch.gru_cell(p["x"], p["h"], *stacked(p, "out", "rzn"))


def case_lstm(c):
    d, hidden = c.size(), c.size()
    c.matrix("x", 1, d)
    c.matrix("h", 1, hidden)
    c.matrix("c", 1, hidden)
    add_gates(c, "out", "ifgo", d, hidden)
    c.steps["out"] = "lstm_step(x, h, c)"
    return lambda p: torch.lstm_cell(p["x"], (p["h"], p["c"]), *stacked(p, "out", "ifgo"))[0]


def case_decoder_of_2015(c):
    d, hidden = c.size(), c.size()
    c.matrix("state", 1, hidden)
    c.matrix("source", c.size(), d)
    c.matrix("a.w", hidden, 3)
    c.matrix("a.u", d, 3)
    c.matrix("a.v", 3)
    c.matrix("y", 1, 2)
    add_gates(c, "out", "rzn", d + 2, hidden)
    c.steps |= {"a": "additive_attention(state, source)", "x": "concat(y, a)",
                "out": "gru_step(x, state, reset=before)"}  # fmt: skip

    def torch_out(p):
        scores = torch.tanh(p["state"] @ p["a.w"] + p["source"] @ p["a.u"]) @ p["a.v"][0]
        x, h = torch.cat([p["y"], (torch.softmax(scores, 0) @ p["source"])[None]], 1), p["state"]

        def total(gate, state):
            w, u, b, bias = (p[f"out.{kind}_{gate}"] for kind in "wubc")
            return x @ w + b + state @ u + bias

        r, z = (torch.sigmoid(total(gate, h)) for gate in "rz")
        return (1 - z) * torch.tanh(total("n", r * h)) + z * h

    return torch_out


def case_encoder_block(c):
    d, heads, norm = c.size(2, 4), c.size(1, 2), c.rng.choice(["pre", "post"])
    c.matrix("x", c.size(), d)
    add_transformer_block(c, "out", d, heads)
    c.steps["out"] = f"encoder_block(x, heads={heads}, norm={norm}, activation=gelu)"
    return lambda p: transformer_block(p, "out", p["x"], heads=heads, norm=norm, activation="gelu")


def case_encoder_decoder(c):
    d, heads, norm = c.size(2, 4), c.size(1, 2), c.rng.choice(["pre", "post"])
    c.matrix("source", c.size(), d)
    c.matrix("target_x", c.size(), d)
    add_transformer_block(c, "memory", d, heads)
    add_transformer_block(c, "out", d, heads, memory=d)
    c.steps["memory"] = f"encoder_block(source, heads={heads}, norm={norm})"
    c.steps["out"] = f"decoder_block(target_x, memory, heads={heads}, norm={norm})"

    def torch_out(p):
        memory = transformer_block(p, "memory", p["source"], heads=heads, norm=norm)
        return transformer_block(p, "out", p["target_x"], memory, heads=heads, norm=norm, causal=True)

    return torch_out


def gpt_logits(p, ids, *, layers=1, heads=1, tied=True, activation="relu"):
    x = p["out.embedding.table"][ids] + p["out.positions.table"][: len(ids)]
    for layer in range(1, layers + 1):
        x = transformer_block(p, f"out.layer{layer}", x, heads=heads, causal=True, activation=activation)
    x = layer_norm(p, "out.final_norm", x)
    return x @ p["out.embedding.table"].T if tied else x @ p["out.w_out"]


def add_gpt(c, width, layers, heads, tied):
    c.settings |= {"tokens": ["the", "cat"], "vocabulary": list(WORDS), "targets": ["cat", "sat"]}
    c.matrix("out.embedding.table", len(WORDS), width)
    c.matrix("out.positions.table", 3, width)
    for layer in range(1, layers + 1):
        add_transformer_block(c, f"out.layer{layer}", width, heads)
    c.norm("out.final_norm", width)
    if not tied:
        c.matrix("out.w_out", width, len(WORDS))


def case_gpt(c):
    layers, heads, tied, d = c.size(1, 2), c.size(1, 2), bool(c.size(0, 1)), c.size(2, 4)
    add_gpt(c, d, layers, heads, tied)
    c.steps["out"] = f"gpt(layers={layers}, heads={heads}, activation=silu)"
    return lambda p: gpt_logits(p, torch.tensor([0, 1]), layers=layers, heads=heads, tied=tied, activation="silu")


def case_softmax(c):
    c.matrix("x", c.size(), c.size(2, 4))
    c.steps["out"] = "softmax(x, temperature=0.5)"
    return lambda p: torch.softmax(p["x"] / 0.5, -1)


CASES = {name.removeprefix("case_"): function for name, function in globals().items() if name.startswith("case_")}


def make(name, seed):
    """Return the solved example with a squared error as loss, the loss of torch, and its gradients."""
    c = Case(seed)
    torch_out = CASES[name](c)
    tensors = {n: torch.tensor(np.atleast_2d(v), requires_grad=True) for n, v in c.given.items()}
    out = torch_out(tensors)
    c.matrix("target", *out.shape)
    loss = 0.5 * (out - torch.tensor(np.atleast_2d(c.given["target"]))).square().sum()
    gradients = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
    steps = c.steps | {"loss": "squared_error(out, target)"}
    example = {"title": name, "given": nested(c.given), "steps": steps, "train": {"parameters": list(tensors)}}
    return solve(read_example(example | c.settings)), out, loss, dict(zip(tensors, gradients, strict=True))


def check_against_torch(name, seed):
    worked, out, loss, gradients = make(name, seed)
    out_node = worked.graph.nodes["loss"].routes[0].inputs[0]
    np.testing.assert_allclose(worked.values[out_node], out.detach().numpy(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(worked.values["loss"][0, 0], loss.item(), rtol=1e-12)
    for parameter, gradient in gradients.items():
        if gradient is not None:
            values = worked.values[related_name("d", parameter)]
            np.testing.assert_allclose(values, gradient.numpy(), rtol=1e-11, atol=1e-12, err_msg=parameter)


@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_equal_torch(name):
    for seed in range(8):
        check_against_torch(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_forward_and_backward_equal_torch_on_500_cases(name):
    for seed in range(500):
        check_against_torch(name, seed)


@pytest.mark.parametrize("name", CASES)
def test_gradients_equal_finite_differences(name):
    worked, *_, gradients = make(name, 100)
    given = {n: worked.values[n] for n, node in worked.graph.nodes.items() if not node.routes}
    rng = np.random.default_rng(0)
    for parameter in gradients:
        if parameter.endswith(".frequency"):  # fixed, not trained
            continue
        place = tuple(int(rng.integers(size)) for size in given[parameter].shape)
        losses = []
        for change in (1e-5, -1e-5):
            moved = given[parameter].copy()
            moved[place] += change
            losses.append(worked.graph.evaluate(given | {parameter: moved})["loss"][0, 0])
        analytic = worked.values.get(related_name("d", parameter), np.zeros_like(given[parameter]))[place]
        assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(analytic, rel=1e-6, abs=1e-6), parameter


@pytest.mark.parametrize("name", CASES)
def test_the_same_lines_run_on_array_api_strict(name):
    worked, *_ = make(name, 3)
    given = {n: array_api_strict.asarray(worked.values[n]) for n, node in worked.graph.nodes.items() if not node.routes}
    values = worked.graph.evaluate(given, array_api_strict)
    for node, expected in worked.values.items():
        np.testing.assert_allclose(np.asarray(values[node]._array), expected, rtol=1e-13, atol=1e-13, err_msg=node)


@pytest.mark.parametrize("name", CASES)
def test_bounds_contain_what_rounded_inputs_give(name):
    """Inputs read at three decimals give intervals that contain every node of the true inputs, gradients too."""
    worked, *_ = make(name, 3)
    given = {n: worked.values[n] for n, node in worked.graph.nodes.items() if not node.routes}
    rounded = {n: values.round(3) for n, values in given.items()}
    bounds = worked.graph.evaluate({n: Interval(v - 5e-4, v + 5e-4) for n, v in rounded.items()}, intervals)
    for node, values in worked.values.items():
        slack = 1e-12 * (1 + np.abs(np.where(np.isfinite(values), values, 0)))
        inside = (bounds[node].low <= values + slack) & (values - slack <= bounds[node].high)
        assert inside.all(), node


@pytest.mark.parametrize("name", CASES)
def test_every_displayed_cell_evaluates(name):
    check(make(name, 5)[0])


def tiny_gpt(seed, optimizer, **settings):
    c = Case(seed)
    add_gpt(c, 4, 1, 2, tied=True)
    train = {"optimizer": optimizer, "lr": 0.05} | settings
    lines = {"out": "gpt(heads=2, activation=gelu)", "loss": "cross_entropy(out)"}
    example = read_example({"title": "t", "given": nested(c.given), "steps": lines, "train": train} | c.settings)
    return example, {name: torch.tensor(np.atleast_2d(v), requires_grad=True) for name, v in c.given.items()}


OPTIMIZERS = {
    "sgd": ({}, lambda p: torch.optim.SGD(p, lr=0.05)),
    "momentum": ({"momentum": 0.8}, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.8)),
    "adamw": ({"weight_decay": 0.1, "beta_2": 0.95},
              lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1, betas=(0.9, 0.95))),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gpt_trained_20_steps_on_paper_has_the_losses_of_torch(name):
    settings, make_optimizer = OPTIMIZERS[name]
    example, parameters = tiny_gpt(1, name, **settings)
    optimizer = make_optimizer(list(parameters.values()))
    losses = []
    for _ in range(20):
        logits = gpt_logits(parameters, torch.tensor([0, 1]), heads=2, activation="gelu")
        loss = F.cross_entropy(logits, torch.tensor([1, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    on_paper = list(train_steps(example, 20))
    np.testing.assert_allclose([w.values["loss.loss"][0, 0] for w in on_paper], losses, rtol=0, atol=1e-9)
    after = [w.values["after.loss.loss"][0, 0] for w in on_paper[:-1]]
    np.testing.assert_allclose(after, losses[1:], rtol=0, atol=1e-9)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(("smoothing", "targets"), [(0.0, ["cat", "sat"]), (0.1, ["cat", "sat"]), (0.2, ["", "on"])])
def test_cross_entropy_with_smoothing_and_missing_targets(smoothing, targets):
    logits = np.random.default_rng(0).normal(size=(2, 5))
    given = {"title": "t", "tokens": ["the", "cat"], "vocabulary": list(WORDS), "targets": targets, "train": {}}
    steps = {"loss": f"cross_entropy(logits, smoothing={smoothing})"}
    worked = solve(read_example(given | {"given": {"logits": logits}, "steps": steps}))
    tensor = torch.tensor(logits, requires_grad=True)
    ids = torch.tensor([WORDS.index(word) if word else -100 for word in targets])
    loss = F.cross_entropy(tensor, ids, label_smoothing=smoothing)
    np.testing.assert_allclose(worked.values["loss.loss"][0, 0], loss.item(), rtol=1e-12)
    np.testing.assert_allclose(worked.values["d_logits"], torch.autograd.grad(loss, tensor)[0], atol=1e-15)
    np.testing.assert_allclose(worked.values["loss.perplexity"][0, 0], np.exp(loss.item()), rtol=1e-12)


def test_wrong_gradient_is_found(monkeypatch):
    right = Multiply.gradients
    monkeypatch.setattr(Multiply, "gradients", lambda self, at: right(self, at)[::-1])
    with pytest.raises((AssertionError, ValueError, InvalidInput)):
        check_against_torch("gru", 0)


WRONG = {
    "an unknown operation": ({"y": "rellu(x)"}, "there is no operation rellu", "relu"),
    "not a call": ({"y": "x + 1"}, "is not of the form", "hidden"),
    "an unknown setting": ({"y": "layer_norm(x, epsilon=0)"}, "epsilon: unknown key", "eps"),
    "a wrong setting": ({"y": "encoder_block(x, norm=middle)"}, "norm should be one of", ""),
    "a missing matrix": ({"y": "project(x, w_2)"}, "w_2 is not given", "w"),
    "a missing matrix of a block": ({"y": "feed_forward(x)"}, "y.w_1 is not given", "y.w_1"),
    "shapes that do not fit": ({"y": "add(x, w)"}, "y: the shapes do not fit: x 2x2, w 3x1", ""),
    "a product that does not fit": ({"y": "project(x, w)"}, "y: .* is 2x2 and .* is 3x1", ""),
    "two steps of one name": ({"x": "relu(x)"}, "There are two steps x", ""),
    "a setting of a step": ({"y": "relu(x, slope=1)"}, "relu has no settings", ""),
    "too many inputs": ({"y": "layer_norm(x, w)"}, "y: layer_norm takes 1 input, not 2", ""),
    "too few inputs": ({"y": "add()"}, "y: add takes 2 inputs or more, not 0", ""),
    "a row without variance": ({"y": "layer_norm(c, eps=0)"}, "y.normalised are not finite", "eps"),
    "the logarithm of zero": ({"y": "log(c)"}, "y are not finite", ""),
    "a temperature of zero": ({"y": "softmax(x, temperature=0)"}, "temperature is 0.0", "above 0"),
    "no targets": ({"y": "cross_entropy(x)"}, "0 targets for 2 rows of x", "targets"),
    "a token that is not in the vocabulary": ({"y": "embedding()"}, "'a' is not in the vocabulary", ""),
}


@pytest.mark.parametrize(("steps", "message", "hint"), WRONG.values(), ids=WRONG)
def test_wrong_lines_are_explained(steps, message, hint):
    given = {"x": [[1, 2], [3, 4]], "w": [[1], [2], [3]], "c": [[0, 0]]}
    with pytest.raises(InvalidInput, match=message) as caught:
        solve(read_example({"title": "t", "tokens": ["a", "b"], "given": given, "steps": steps}))
    assert hint in (caught.value.hint or "")


def test_no_gradient_through_a_choice():
    example = {"title": "t", "vocabulary": ["a", "b"], "given": {"z": [[1, 2]]}, "train": {"loss": "s"},
               "steps": {"y": "sampling(z, top_k=1)", "s": "sum(y)"}}  # fmt: skip
    with pytest.raises(InvalidInput, match="no gradient through"):
        solve(read_example(example))


TRAINED = {
    "an unknown loss": ({"loss": "los"}, "los is not given"),
    "a loss of several numbers": ({"loss": "x"}, "x is not a single number"),
    "an unknown parameter": ({"parameters": ["w"]}, "no step uses w"),
    "a step before the first": ({"step": 0}, "step is 0"),
}


@pytest.mark.parametrize(("train", "message"), TRAINED.values(), ids=TRAINED)
def test_wrong_training_settings_are_explained(train, message):
    example = {"title": "t", "given": {"x": [[1, 2]]}, "steps": {"loss": "sum(x)"}, "train": train}
    with pytest.raises(InvalidInput, match=message):
        solve(read_example(example))


def test_the_cache_gives_the_same_contexts_with_fewer_multiplications():
    worked = solve(load_example("kv-cache"))
    for step in (2, 3):
        without, cached = (worked.values[f"decoding.step{step}.{kind}.context"] for kind in ("without", "cached"))
        np.testing.assert_allclose(cached[0], without[-1], rtol=1e-15)
    counts = worked.values["decoding.multiplications"]
    assert counts[0, 0] == counts[0, 1] == 3 * 4 + 2 + 2
    assert (counts[1:, 1] < counts[1:, 0]).all()
    assert counts[2].tolist() == [3 * 12 + 2 * 18, 3 * 4 + 2 * 6]


def test_two_beams_find_a_better_sequence_than_greedy_search():
    worked = solve(load_example("beam-search"))
    table = np.log(np.exp(worked.values["logits"]) / np.exp(worked.values["logits"]).sum(1, keepdims=True))
    totals = {(a, b): table[0, a] + table[a, b] for a in range(5) for b in range(5)}
    best = max(totals, key=totals.get)
    assert worked.step("beams.step2.totals").rows[0] == " ".join(["I", *(WORDS_OF_BEAMS[i] for i in best)])
    assert worked.values["beams.step2.totals"][0, 0] == pytest.approx(totals[best])
    assert worked.values["greedy.step2.totals"][0, 0] < totals[best] - 0.1
    assert worked.step("greedy.step2.totals").rows == ("I love AI",)


def test_beams_choose_again_when_a_logit_changes():
    example = load_example("beam-search")
    rng = np.random.default_rng(3)
    graph = solve(example).graph
    for _ in range(20):
        logits = rng.normal(size=(5, 5)) * 2
        own = solve(dataclasses.replace(example, given={"logits": logits.tolist()}))
        again = graph.evaluate({"logits": logits})
        for name in ("greedy.step1.last_words", "beams.step1.last_words", "beams.step2.totals"):
            np.testing.assert_allclose(again[name], own.values[name], rtol=1e-12)


WORDS_OF_BEAMS = ("I", "love", "like", "AI", "pizza")


def test_top_k_and_top_p_keep_what_their_definition_says():
    rng = np.random.default_rng(2)
    for _ in range(20):
        logits = rng.normal(size=(1, 6)).round(1)
        example = {"title": "t", "vocabulary": list("abcdef"), "given": {"z": logits},
                   "steps": {"k": "sampling(z, top_k=3)", "p": "sampling(z, top_p=0.7, temperature=0.5)"}}  # fmt: skip
        worked = solve(read_example(example))
        order = np.argsort(-logits[0], kind="stable")
        assert set(np.flatnonzero(worked.values["k.kept"])) == set(order[:3])
        shares = worked.values["p.probabilities"][0]
        needed = next(n for n in range(1, 7) if shares[order[:n]].sum() >= 0.7)
        assert set(np.flatnonzero(worked.values["p.kept"])) == set(order[:needed])
        np.testing.assert_allclose(worked.values["p.renormalised"].sum(), 1)
        assert np.argmax(worked.values["k.greedy"]) == order[0]
