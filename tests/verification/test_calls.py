"""How `prove` finds a call: in examples of the project, by annotations, and by errors of calls that failed."""

import dataclasses
import itertools
import json
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from peasy.errors import InvalidInput
from peasy.verification.implementation import captured
from peasy.verification.implementation import examine as examination
from peasy.verification.implementation.arguments import SIZES, make_config, objects_of
from peasy.verification.implementation.call_text import failure
from peasy.verification.implementation.calls import _model_calls, attempts
from peasy.verification.implementation.examine import examine
from peasy.verification.implementation.examples import example_calls
from peasy.verification.implementation.loading import find_target, load_module
from peasy.verification.implementation.package_functions import rearrange, reduce, repeat
from peasy.verification.implementation.repairs import repaired_calls
from peasy.verification.verdict import EQUAL, NOT_COMPARED, WRONG

HARD = '''
import math, torch
from torch import nn

class Attention(nn.Module):
    """Attention whose arguments nobody can guess."""
    def __init__(self, zeta, kind):
        super().__init__()
        if kind != "k" * 3 or zeta % 35:
            raise ValueError("no")
        self.w_q, self.w_k, self.w_v = (nn.Linear(zeta, zeta) for _ in range(3))
    def forward(self, x, number):
        if number != 17:
            raise ValueError("no")
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v
'''
CALL = 'width = 70\nattention = Attention(width, kind="kkk")\nx = torch.rand(2, 6, width)\ny = attention(x, 17)\n'


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(examination, "STRICT", True)


def load(tmp_path, text, name="Attention", file="hard.py"):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / file).write_text(text)
    return find_target(load_module(tmp_path / file)[0], name, file)


def indented(text, by=4):
    return "".join(" " * by + line + "\n" for line in text.splitlines())


PROMPTS = "".join(f">>> {line}\n" for line in CALL.splitlines())
EXAMPLES = {
    "main": ("", "hard.py", 'if __name__ == "__main__":\n' + indented(CALL)),
    "docstring": ("", "hard.py", f'def use():\n    """Use.\n\n{indented(PROMPTS)}    """\n'),
    "readme": ("README.md", "", f"# Use\n\n```python\nfrom hard import Attention\n{CALL}```\n"),
    "test": ("test_it.py", "", "import torch, absent\nfrom hard import Attention\ndef test_it():\n" + indented(CALL)),
    "setup": (
        "test_it.py", "", "import torch\nfrom hard import Attention\nclass TestIt:\n    def setUp(self):\n"
        + indented('self.a = Attention(70, "kkk")', 8)
        + "    def test_it(self):\n"
        + indented("with torch.no_grad():\n    y = self.a(torch.rand(2, 6, 70), number=17)", 8),
    ),
    "notebook": ("use.ipynb", "", json.dumps({"cells": [
        {"cell_type": "code", "source": ["from hard import Attention\n", "import torch\n"]},
        {"cell_type": "code", "source": CALL.splitlines(keepends=True)},
    ]})),
}  # fmt: skip


@pytest.mark.parametrize("kind", EXAMPLES)
def test_calls_of_the_project_are_found(tmp_path, kind):
    other, _, text = EXAMPLES[kind]
    if other:
        (tmp_path / other).write_text(text)
    target = load(tmp_path, HARD + ("" if other else text))
    calls = list(example_calls(target, str(tmp_path / "hard.py")))
    assert len(calls) == 1
    assert calls[0].created == {"zeta": 70, "kind": "kkk"}
    assert calls[0].arguments["x"].shape == (2, 6, 70)
    assert calls[0].arguments["number"] == 17


@pytest.mark.parametrize("folder", [".git", "venv/lib/site-packages", "node_modules", "examples"])
def test_files_of_other_projects_are_not_searched(tmp_path, folder):
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "test_it.py").write_text(EXAMPLES["test"][2])
    calls = list(example_calls(load(tmp_path, HARD), str(tmp_path / "hard.py")))
    assert len(calls) == (folder == "examples")


def test_a_damaged_notebook_of_the_project_does_not_end_the_search(tmp_path):
    (tmp_path / "readme.ipynb").write_text("no JSON about Attention")
    (tmp_path / "test_it.py").write_text(EXAMPLES["test"][2])
    assert len(list(example_calls(load(tmp_path, HARD), str(tmp_path / "hard.py")))) == 1


def test_an_example_leads_to_a_comparison(tmp_path):
    target = load(tmp_path, HARD + EXAMPLES["main"][2])
    diagnosis = examine(target, file=str(tmp_path / "hard.py"))
    assert diagnosis.verdict == EQUAL
    assert diagnosis.call.endswith("as in hard.py")


def test_without_an_example_it_is_not_called(tmp_path):
    target = load(tmp_path, HARD)
    with pytest.raises(InvalidInput, match="could not be called"):
        examine(target, file=str(tmp_path / "hard.py"))


def test_what_the_example_does_not_need_is_not_run(tmp_path):
    mark = tmp_path / "mark"
    touch = f'open({str(mark)!r}, "w")\n'
    lines = f"log = {touch}for _ in range(3):\n    {touch}{touch}{CALL}{touch}"
    target = load(tmp_path, HARD + 'if __name__ == "__main__":\n' + indented(lines))
    assert len(list(example_calls(target, str(tmp_path / "hard.py")))) == 1
    assert not mark.exists()


FUNCTION = """
import torch
def attention(q, k, v, secret):
    if secret != "blue":
        raise ValueError("no")
    return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1) @ v
def test_attention():
    q = torch.rand(2, 3, 6, 10)
    k, v = torch.rand(2, 3, 7, 10), torch.rand(2, 3, 7, 10)
    assert attention(q, k, v, secret="blue").shape == q.shape
"""


def test_calls_of_functions_are_found(tmp_path):
    target = load(tmp_path, FUNCTION, "attention")
    diagnosis = examine(target, file=str(tmp_path / "hard.py"))
    assert diagnosis.verdict == EQUAL


LOOPS = """
import math
import numpy as np
def attention(q, k, v, causal=False):
    if causal:
        raise NotImplementedError
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        scores = [sum(a * b for a, b in zip(q[i].tolist(), row.tolist())) / math.sqrt(q.shape[1]) for row in k]
        powers = [math.exp(min(s, 700)) for s in scores[: i + 1]]
        for power, row in zip(powers, v):
            out[i] += power / sum(powers) * row
    return out
"""


def test_errors_of_further_calls_do_not_end_an_examination(tmp_path):
    """With large queries all powers of a row are 0; with its flag the code raises an error."""
    target = load(tmp_path, LOOPS, "attention")
    found = examine(target, file=str(tmp_path / "hard.py"))
    assert (found.verdict, found.cautions) == (NOT_COMPARED, ("exp without maximum",))
    assert any("causal=True" in reason for reason in found.unknown)


def test_an_array_may_be_a_default(tmp_path):
    text = FUNCTION.replace("secret):", "secret, table=np.eye(3)):").replace(
        "import torch", "import torch\nimport numpy as np"
    )
    assert examine(load(tmp_path, text, "attention"), file=str(tmp_path / "hard.py")).verdict == EQUAL
    with pytest.raises(InvalidInput, match="could not be called"):
        examine(load(tmp_path, text.partition("def test_")[0], "attention"), file=str(tmp_path / "hard.py"))


BY_CLASS = """
import torch
class Mask:
    def __init__(self, bool_mask: torch.Tensor):
        self.bool_mask = bool_mask.view(bool_mask.shape[0], 1, 1, -1)
    def hide(self, scores):
        return scores.masked_fill(~self.bool_mask, float("-inf"))
def attention(q, k, v, mask: "Mask"):
    return torch.softmax(mask.hide(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5), dim=-1) @ v
"""


def test_arguments_of_the_projects_classes_are_made(tmp_path):
    assert examine(load(tmp_path, BY_CLASS, "attention"), file=str(tmp_path / "hard.py")).verdict == EQUAL


SETTINGS = """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        if str(cfg.mode_of_it) not in ("plain", "other"):
            raise ValueError("mode_of_it must be 'plain' or 'other'")
        self.w_q, self.w_k, self.w_v = (nn.Linear(cfg.d_model, cfg.d_model) for _ in range(3))
    def forward(self, x):
        q, k, v = self.w_q(x), self.w_k(x), self.w_v(x)
        return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** WHAT, dim=-1) @ v
"""


@pytest.mark.parametrize(("power", "verdict"), [("0.5", EQUAL), ("1.0", NOT_COMPARED)])
def test_settings_are_found_by_errors_but_decide_no_mistake(tmp_path, power, verdict):
    diagnosis = examine(load(tmp_path, SETTINGS.replace("WHAT", power)), file=str(tmp_path / "hard.py"))
    assert diagnosis.verdict == verdict
    assert "plain" in diagnosis.call


ADDITIVE = """
import torch
from torch import nn
class AdditiveAttention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.query_proj, self.key_proj = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.bias, self.score_proj = nn.Parameter(torch.rand(dim)), nn.Linear(dim, 1)
    def forward(self, query, key, value):
        score = self.score_proj(torch.tanh(self.key_proj(key) + self.query_proj(query) + self.bias)).squeeze(-1)
        weights = torch.softmax(score, dim=-1)
        return torch.bmm(weights.unsqueeze(1), value) + query
"""


def test_another_number_of_queries_is_no_error_of_the_examination(tmp_path):
    diagnosis = examine(load(tmp_path, ADDITIVE, "AdditiveAttention"), file=str(tmp_path / "hard.py"))
    assert diagnosis.verdict == NOT_COMPARED


def test_sizes_of_an_example_decide_no_mistake_where_something_is_unknown(tmp_path):
    text = HARD.replace("math.sqrt(q.size(-1))", "8")  # √70, rounded down
    text = text.replace("return torch", "c = torch") + "        return c + c.mean(1, keepdim=True)\n"
    target = load(tmp_path, text + EXAMPLES["main"][2])
    found = examine(target, file=str(tmp_path / "hard.py"))
    assert found.verdict == NOT_COMPARED
    assert any("floor division was found, but" in reason for reason in found.unknown)


def test_arrays_are_rearranged_as_tensors_are():
    x = np.arange(24.0).reshape(2, 3, 4)
    for pattern in ("b t (h d) -> (b h) t d", "b t (h d) -> h (t b d)"):
        expected = rearrange(torch.from_numpy(x), pattern, h=2).numpy()
        assert np.array_equal(rearrange(x, pattern, h=2), expected)
    expected = np.stack([x, x, x], axis=1)
    assert np.array_equal(repeat(x, "b t d -> b n t d", n=3), expected)
    assert np.array_equal(repeat(torch.from_numpy(x), "b t d -> b n t d", n=3).numpy(), expected)
    for reduction in ("sum", "mean", "max", "min"):
        expected = getattr(x, reduction)(axis=1)
        assert np.allclose(reduce(x, "b t d -> b d", reduction), expected)
        assert np.allclose(reduce(torch.from_numpy(x), "b t d -> b d", reduction).numpy(), expected)


def test_sizes_are_pairwise_different():
    for sizes in SIZES:
        axes = [sizes.batch, sizes.heads, sizes.d_head, sizes.time, sizes.keys, sizes.d_model]
        assert len(set(axes)) == len(axes)


METHOD = """
import numpy as np
class Attention:
    def __init__(self, d_model):
        self.w_q, self.w_k, self.w_v = (np.random.default_rng(i).normal(size=(d_model, d_model)) for i in range(3))
    def softmax(self, scores):
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)
    def compute_attention(self, x):
        q, k, v = x @ self.w_q, x @ self.w_k, x @ self.w_v
        return self.softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])) @ v
"""


def test_a_method_of_another_name_is_called_and_can_be_typed(tmp_path):
    target = load(tmp_path, METHOD)
    found = examine(target, file=str(tmp_path / "hard.py"))
    assert (found.verdict, found.call) == (EQUAL, "Attention(d_model=48).compute_attention(x)")
    assert examine(target, file=str(tmp_path / "hard.py"), call=found.call).verdict == EQUAL


LAYER = """
import torch
def attention(q, k, v, dropout):
    return dropout(torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, dim=-1)) @ v
"""


@pytest.mark.parametrize("layer", ["nn.Dropout(0.5)", "nn.Sequential(nn.Dropout(0.5))"])
def test_layers_of_torch_in_a_typed_call_are_made_once(tmp_path, layer):
    target = load(tmp_path, LAYER, "attention")
    found = examine(target, file=str(tmp_path / "hard.py"), call=f"attention(q, k, v, {layer})")
    assert (found.verdict, found.mistakes) == (EQUAL, ())


def test_a_call_that_is_not_found_gives_its_error_and_one_line_to_run(tmp_path):
    with pytest.raises(InvalidInput) as caught:
        examine(load(tmp_path, HARD), file=str(tmp_path / "hard.py"))
    assert 'Line 10: raise ValueError("no")' in caught.value.message
    assert caught.value.hint.count("--call") == 1
    assert "number=..." in caught.value.hint


def test_a_second_examination_says_the_same(tmp_path):
    target, messages = load(tmp_path, HARD), []
    for _ in range(2):
        with pytest.raises(InvalidInput) as caught:
            examine(target, file=str(tmp_path / "hard.py"))
        messages.append(caught.value.message)
    assert messages[0] == messages[1]


def test_a_class_without_a_method_for_arrays_says_so(tmp_path):
    with pytest.raises(InvalidInput, match="no forward") as caught:
        examine(load(tmp_path, "class Attention:\n    def fit(self, rows): pass\n"), file=str(tmp_path / "hard.py"))
    assert '--call "Attention(...).fit(x)"' in caught.value.hint


def test_many_tokens_of_an_example_are_cut_with_the_numbers_that_belong_to_them(tmp_path):
    """An author's full sizes would take minutes; widths stay, and a mask is cut with its tokens."""
    text = HARD.replace("def forward(self, x, number)", "def forward(self, x, table, number, size)").replace(
        "if number != 17", "if number != 17 or table.shape != (size, size) or x.shape[1] != size"
    )
    call = "x = torch.rand(64, 256, 70)\na = Attention(70, 'kkk')\ny = a(x, torch.ones(256, 256), 17, 256)\n"
    target = load(tmp_path, text + 'if __name__ == "__main__":\n' + indented(call))
    attempt = next(iter(attempts(target, SIZES[0], 0, [], str(tmp_path / "hard.py"))))
    batch, tokens, width = attempt.subject.inputs["x"].shape
    assert (batch <= 16, tokens <= 16, width) == (True, True, 70)
    assert tuple(attempt.subject.constants["table"].shape) == (tokens, tokens)
    assert attempt.subject.constants["size"] == tokens
    assert examine(target, file=str(tmp_path / "hard.py")).verdict == EQUAL


def test_sizes_of_an_example_that_cannot_be_cut_stay(tmp_path):
    text = HARD.replace("if number != 17", "if x.shape != (2, 101, 70)")
    call = "a = Attention(70, 'kkk')\ny = a(torch.rand(2, 101, 70), 17)\n"
    target = load(tmp_path, text + 'if __name__ == "__main__":\n' + indented(call))
    attempt = next(iter(attempts(target, SIZES[0], 0, [], str(tmp_path / "hard.py"))))
    assert attempt.subject.inputs["x"].shape == (2, 101, 70)


def test_calls_are_found_on_a_slow_computer(tmp_path, monkeypatch):
    """Only counts end a search: on a computer on which an hour passes at each look at the clock it is the same."""
    clock = itertools.count(0, 3600)
    monkeypatch.setattr(time, "process_time", lambda: float(next(clock)))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    found = [
        [one.subject.text for one in attempts(load(tmp_path, text), SIZES[0], 0, [], str(tmp_path / "hard.py"))][:2]
        for text in (HARD + EXAMPLES["main"][2], SETTINGS.replace("WHAT", "0.5"))
    ]
    assert "as in hard.py" in found[0][0]
    assert "plain" in found[1][0]


def test_hooks_of_the_module_run_in_calls_of_examples(tmp_path):
    hook = "        self.register_forward_hook(lambda module, inputs, output: output * 2)\n"
    text = HARD.replace("    def forward", hook + "    def forward")
    target = load(tmp_path, text + EXAMPLES["main"][2])
    attempt = next(iter(attempts(target, SIZES[0], 0, [], str(tmp_path / "hard.py"))))
    with_hook = attempt.subject.plain()[0]
    attempt.module._forward_hooks.clear()
    assert np.allclose(with_hook, 2 * attempt.subject.plain()[0])


def test_objects_of_the_projects_classes_are_new_for_each_trial(tmp_path):
    """An object that changes itself when it is called must not carry that into the next trial."""
    cls = load(tmp_path, "class Counter:\n    def __init__(self, start=0): self.start = start\n", "Counter")
    assert len({id(one) for one in [*objects_of(cls, SIZES[0]), *objects_of(cls, SIZES[0])]}) == 2


def test_a_users_folder_may_be_named_as_this_package(tmp_path):
    folder = tmp_path / "my-peasy"
    folder.mkdir()
    (folder / "helper.py").write_text("def helper(q):\n    raise ValueError('no')\n")
    (folder / "hard.py").write_text("from helper import helper\ndef attention(q, k, v): return helper(q)\n")
    with pytest.raises(ValueError, match="no") as caught:
        find_target(load_module(folder / "hard.py")[0], "attention", "hard.py")(1, 2, 3)
    assert failure(caught.value, "", "").file == str(folder / "helper.py")


ACTS = [
    "subprocess and X", "open('mark', 'w') and X", "print('x', file=open('mark', 'a')) or X",
    "(X, torch.save(X, 'mark'))[0]",
    "(X + torch.zeros(1, requires_grad=True)).sum().backward() or X",
]  # fmt: skip


@pytest.mark.parametrize("act", ACTS)
def test_examples_that_do_more_than_call_are_not_run(tmp_path, act):
    """Files of other people are not written, nor programs started, only to find out how code is called."""
    lines = CALL.replace("x = torch.rand(2, 6, width)", f"import subprocess\nX = torch.rand(2, 6, 70)\nx = {act}")
    target = load(tmp_path, HARD + 'if __name__ == "__main__":\n' + indented(lines))
    assert not list(example_calls(target, str(tmp_path / "hard.py")))
    assert not (tmp_path / "mark").exists()


def test_an_example_ends_after_a_number_of_steps(tmp_path):
    text = "def train():\n    import math\n    while True:\n        math.sqrt(2)\n"
    call = CALL.replace("width = 70", "width = train() or 70")
    target = load(tmp_path, HARD + text + 'if __name__ == "__main__":\n' + indented(call))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured, "_MAX_STEPS", 20_000)
        assert not list(example_calls(target, str(tmp_path / "hard.py")))


def test_frozen_settings_keep_what_they_set_themselves():
    @dataclasses.dataclass(frozen=True)
    class FrozenConfig:
        hidden_size: int = 64

        def __post_init__(self):
            object.__setattr__(self, "num_heads", 9)

    made = make_config(FrozenConfig, SIZES[0])
    assert made.num_heads == 9, "it cannot be changed"


FORMULA = "torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v"
FOUND = {
    "a global that only its script or a notebook sets": """
import math, torch
def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d_k), dim=-1) @ v
def train():
    global d_k
    d_k = 64
""",
    "settings with another name, and their words": f"""
import math, torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, hidden_size, cfg_attention):
        super().__init__()
        self.heads = cfg_attention.num_attention_heads
        if cfg_attention.order == "batch":
            self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        else:
            raise ValueError("order")
    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return ({FORMULA}).transpose(1, 2).flatten(2)
""",
    "keys and values as one argument": """
import math, torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w_q, self.w_o = nn.Linear(dim, dim), nn.Linear(dim, dim)
    def forward(self, x, encoder_out):
        weights = torch.bmm(self.w_q(x), encoder_out[0].transpose(1, 2)) / math.sqrt(x.size(-1))
        return self.w_o(torch.bmm(torch.softmax(weights, -1), encoder_out[1]))
""",
    "arrays of a class of its own": """
import numpy as np
class Tensor:
    def __init__(self, data):
        self.data = np.asarray(data)
    def matmul(self, other):
        return Tensor(self.data @ other.data)
class Attention:
    def forward(self, q: Tensor, k: Tensor, v: Tensor):
        scores = q.matmul(Tensor(k.data.swapaxes(-1, -2))).data / np.sqrt(k.data.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return Tensor(weights / weights.sum(-1, keepdims=True)).matmul(v)
""",
    "arrays of NumPy beside a class of the project": """
import numpy as np
class Tensor:
    def __init__(self, data):
        self.data = data
def attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
""",
    "arrays of NumPy under another name": """
import numpy as np
Tensor = np.ndarray
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(k.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
""",
}


@pytest.mark.parametrize("kind", FOUND)
def test_arguments_of_other_kinds_are_found(tmp_path, kind):
    target = load(tmp_path, FOUND[kind], "attention" if "def attention" in FOUND[kind] else "Attention")
    assert examine(target, file=str(tmp_path / "hard.py")).verdict == EQUAL


def test_numbers_under_main_of_a_notebook_are_known(tmp_path):
    source = 'def attention(q):\n    return q / d\nif __name__ == "__main__":\n    d = 64\n'
    (tmp_path / "use.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": source}]}))
    assert load_module(tmp_path / "use.ipynb")[0].d == 64


def test_a_captured_call_has_arrays_not_the_ids_of_a_trial(tmp_path):
    inner = f"def attend(query, key, value, w_in, secret):\n    q, k, v = query, key, value\n    return {FORMULA}\n"
    outer = (
        "class Layer(nn.Module):\n    def __init__(self, dim):\n        super().__init__()\n"
        "        self.w_in = nn.Parameter(torch.ones(dim, dim))\n"
        "    def forward(self, query, key, value):\n        return attend(query, key, value, self.w_in, 17)\n"
    )
    target = load(tmp_path, f"import math, torch\nfrom torch import nn\n{inner}{outer}", "attend")
    calls = list(captured.captured_calls(target, SIZES[0], str(tmp_path / "hard.py"), _model_calls))
    assert [call.arguments["query"].shape for call in calls] == [(2, 5, 48)]


_RECURRENT = """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.rnn = nn.GRU(hidden_size, hidden_size, batch_first=True)
    def forward(self, inputs, hidden, encoder_outputs):
        output, hidden = self.rnn(inputs, hidden)
"""


def test_arrays_get_the_shape_that_an_error_names(tmp_path):
    attends = "        return torch.softmax(output @ encoder_outputs.transpose(1, 2), -1) @ encoder_outputs\n"
    recurrent = _RECURRENT + attends
    found = list(itertools.islice(repaired_calls(load(tmp_path, recurrent), SIZES[0], [], ""), 1))
    assert [tuple(call.arguments["hidden"].shape) for call in found] == [(1, 2, 48)]


LASTING = {
    "its first call": """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj, self.shape = nn.Linear(48, 48), None
    def forward(self, x, zeta):
        self.shape = self.shape or zeta.shape
        if zeta.shape != self.shape or zeta.dim() != 2:
            raise RuntimeError("2D tensor expected")
        return torch.softmax(self.proj(x) @ x.mT, -1) @ x
""",
    "settings that guess": """
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.proj = config, nn.Linear(config.hidden_size, config.hidden_size)
    def forward(self, x, memory):
        return torch.softmax(self.proj(x) @ x.mT, -1) @ x * (not self.config.zeta_of_this)
""",
}


@pytest.mark.parametrize("kind", LASTING)
def test_an_object_that_remembers_a_call_or_other_settings_is_made_anew(tmp_path, kind):
    assert next(repaired_calls(load(tmp_path, LASTING[kind]), SIZES[0], [], ""), None) is not None


MESSAGES = {
    "the line to complete": ("def attention(q, k, v):\n    q, k = ...\n    return q @ k @ v\n", "complete line 2"),
    "what is missing": (
        "def attention(q, k, v, zeta):\n    scores = q @ k.T\n    scores = scores[zeta.kind.name]\n"
        "    return softmax(scores) @ v\n",
        "zeta is used in: scores = scores[zeta.kind.name]",
    ),
    "another name of the file": (
        "import torch\ndef attention(q, k):\n    return q.open(k)\n"
        "def attend(q, k, v):\n    return torch.softmax(q @ k.T, -1) @ v\n",
        "In the same file do: attend",
    ),
}


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_call_that_is_not_found_names(tmp_path, kind):
    text, hint = MESSAGES[kind]
    with pytest.raises(InvalidInput) as caught:
        examine(load(tmp_path, text, "attention"), file=str(tmp_path / "hard.py"))
    assert hint in caught.value.hint


def test_a_module_that_is_invented_makes_nothing_equal(tmp_path):
    """The projection that its author gives shortens the keys; one that changes nothing is the formula."""
    text = f"""
import math, torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, zeta):
        super().__init__()
        self.zeta = zeta
    def forward(self, q, k, v):
        if not callable(self.zeta):
            raise TypeError("zeta is not callable")
        k = self.zeta(k)
        return {FORMULA}
"""
    found = examine(load(tmp_path, text), file=str(tmp_path / "hard.py"))
    assert found.verdict == NOT_COMPARED
    assert "zeta got a module that changes nothing" in found.unknown[0]


def test_the_closest_trial_is_shown(tmp_path):
    text = _RECURRENT + '        raise ValueError("no")\n'
    with pytest.raises(InvalidInput) as caught:
        examine(load(tmp_path, text), file=str(tmp_path / "hard.py"))
    assert "hidden=torch.ones(1, " in caught.value.hint
    assert 'raised ValueError: no. Line 10: raise ValueError("no")' in caught.value.message


def test_a_model_with_many_parameters_is_not_made(tmp_path, monkeypatch):
    target = load(tmp_path, HARD + "class Model(nn.Module):\n    def __init__(self, dim):\n"
        "        super().__init__()\n        self.large = nn.Linear(dim, dim)\n"
        "        self.inner = Attention(70, 'kkk')\n"
        "    def forward(self, x):\n        return self.inner(x, 17)\n")  # fmt: skip
    monkeypatch.setattr(captured, "_MAX_NUMBERS", 1000)
    assert not list(captured.captured_calls(target, SIZES[0], str(tmp_path / "hard.py"), _model_calls))


def test_a_module_beside_the_file_does_not_hide_a_package(tmp_path):
    """A file in layers/ imports utils.masking of the project; there is a layers/utils.py, too."""
    for name, text in {"utils/masking.py": "number = 17", "layers/utils.py": "", "layers/one.py": (
        "from utils.masking import number\ndef attention(q, k, v): return number\n"
    )}.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "setup.py").write_text("")
    code = "import pathlib, sys; from peasy.verification.implementation.loading import load_module\n"
    code += "print(load_module(pathlib.Path(sys.argv[1]))[0].number)"
    command = [sys.executable, "-c", code, str(tmp_path / "layers" / "one.py")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "17\n"


@pytest.mark.parametrize(("width", "verdict"), [("model_dim", WRONG), ("embedding_dim", EQUAL)])
def test_a_scale_by_the_wrong_of_two_widths_is_seen(tmp_path, width, verdict):
    """With equal widths both are right."""
    text = f"""
import torch
from torch import nn
class Attention(nn.Module):
    def __init__(self, model_dim, embedding_dim):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Linear(model_dim, embedding_dim) for _ in range(3))
        self.root = {width} ** 0.5
    def forward(self, queries, keys, values):
        q, k, v = self.w_q(queries), self.w_k(keys), self.w_v(values)
        return torch.softmax(q @ k.transpose(-2, -1) / self.root, dim=-1) @ v
"""
    found = examine(load(tmp_path, text), file=str(tmp_path / "hard.py"))
    assert (found.verdict, found.mistakes) == (verdict, ("scale by model width",) if verdict == WRONG else ())
