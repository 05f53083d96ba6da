"""Public functions answer wrong arguments in a sentence, never with a raw Python error."""

import contextlib
import inspect
import itertools
import random
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import peasy
from peasy.atomic import atomic_dir, write_atomic
from peasy.errors import PeasyError, UsageError
from peasy.parameters import parameter_names

WRONG = {
    "none": None, "number": 3, "fraction": 1.5, "bytes": b"x", "object": object(), "ids of nothing": [None],
    "table": {"a": 1}, "empty": "", "function": lambda: 0, "texts of bytes": [b"x"],
}  # fmt: skip
UNTESTED = {"studio", "serve", "runs"}
"""They run until they are stopped, or take nothing."""


def _functions():
    for name in sorted(peasy.__all__):
        public = getattr(peasy, name)
        if inspect.isfunction(public) and name not in UNTESTED:
            yield name


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", list(_functions()))
def test_wrong_types_get_a_sentence(name, wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function, value = getattr(peasy, name), WRONG[wrong]
    parameters = inspect.signature(function).parameters.values()
    required = [
        p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    for given in ({"model": "stories"}, {}):
        arguments = {parameter: given.get(parameter, value) for parameter in required}
        if not [parameter for parameter in required if parameter not in given]:
            continue
        with contextlib.suppress(PeasyError):
            function(**arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("generate", {"model": "stories", "prompt": "a", "max_new_tokens": 3}, "Did you mean max_tokens?"),
        ("train", {"kind": "gpt", "data": "stories", "learning_rate": 0.1}, "Did you mean lr?"),
        ("serve", {"prot": 8001}, "Did you mean port?"),
        ("generate", {"model": "stories", "prompt": 3}, "prompt should be a text or a list"),
        ("tokenize", {"model": "stories"}, "tokenize needs text"),
        ("generate", {"model": "stories", "prompt": [1, "a"]}, "not list of int, str"),
        ("generate", {"model": "stories", "prompt": "a", "weights": 3}, "weights should be one of auto"),
        ("generate", {"model": "x" * 5000, "prompt": "a"}, "File name too long"),
        ("look", {"model": "stories", "text": "a", "layers": "x"}, "layers should be"),
        ("look", {"model": "stories", "text": "a", "edit": 3}, "edit should be an Edit or a function or a list"),
        ("forward_pass", {"model": "stories", "text": "a", "edit": None}, "edit should be a list"),
        (
            "attend",
            {"query": [[1.0]], "key": [[1.0]], "value": [[1.0]], "scoring": 3},
            "scoring should be a text or a Scoring",
        ),
        ("attend", {"query": [[1.0]], "keys": [[1.0]]}, "attend needs key and value"),
    ],
)
def test_the_right_name_is_in_the_answer(name, arguments, answer):
    with pytest.raises(PeasyError, match=answer.replace("?", r"\\?")):
        getattr(peasy, name)(**arguments)


def test_too_many_arguments_without_a_name():
    with pytest.raises(UsageError, match="generate takes without a name only model, prompt; 3 were given"):
        peasy.generate("stories", "a", 7)
    with pytest.raises(UsageError, match="runs takes no arguments without a name"):
        peasy.runs("mine")


def test_numbers_of_numpy_are_numbers():
    wanted = peasy.generate("stories", "The", n=2, max_tokens=2, seed=3).texts
    assert peasy.generate("stories", "The", n=np.int64(2), max_tokens=np.int8(2), seed=np.uint32(3)).texts == wanted


@pytest.mark.parametrize("prompt", [None, 3, b"x", ["a"]])
def test_methods_of_a_model_refuse_what_is_no_text(prompt):
    model = peasy.load("stories")
    with pytest.raises(PeasyError, match="should be a text or a list"):
        model.encode_prompt(prompt)
    with pytest.raises(PeasyError, match="should be a text"):
        next(model.stream(prompt))


UNUSABLE = {
    "none": lambda: None, "true": lambda: True, "bytes": lambda: b"x\xff", "empty text": lambda: "",
    "text of a number": lambda: "3", "half a character": lambda: "a\ud800b", "null": lambda: "a\0b",
    "path with null": lambda: Path("a\0b"),
    "folder": lambda: ".", "huge": lambda: 1 << 70, "too many digits": lambda: 10**5000,
    "negative": lambda: -1, "nan": lambda: float("nan"), "infinite": lambda: float("inf"), "fraction": lambda: 1.5,
    "empty list": list, "empty dict": dict, "set": lambda: {1}, "nested": lambda: [[["a"], []], 1],
    "ragged": lambda: [[1, 2], [3]], "list of none": lambda: [None], "list of huge": lambda: [1 << 70],
    "generator": lambda: (part for part in ("a", 1)), "range": lambda: range(3), "number of numpy": lambda: np.int64(3),
    "truth of numpy": lambda: np.bool_(True), "no axis": lambda: np.array(3), "no numbers": lambda: np.array([]),
    "table": lambda: np.zeros((2, 2)), "objects": lambda: np.array([None, "a"], dtype=object),
    "half precision": lambda: torch.ones(3, dtype=torch.float16),
    "complex": lambda: torch.ones(2, dtype=torch.complex64),
    "tensor without axis": lambda: torch.tensor(2), "empty tensor": lambda: torch.zeros(0, 4), "object": object,
    "class": lambda: dict, "pairs": lambda: [(0, 0)], "buffer": lambda: memoryview(b"ab"), "slice": lambda: slice(1),
    "date": lambda: np.datetime64("2020-01-01"), "long name": lambda: "x" * 5000, "ellipsis": lambda: ...,
}  # fmt: skip
CALLBACKS = {"confirm", "on_progress", "on_status", "on_event", "progress", "announce", "metric", "edit"}
"""Functions of the caller; what they raise is theirs."""
ROW, TEXT = [[1.0, 0.0], [0.0, 1.0]], "The pizza came out of the oven and it tasted good."


def _calls_of_functions():
    """Yield public functions with right arguments."""
    model, translator, encoder = (peasy.load(name) for name in ("stories", "locales-fr", "sentences"))
    for name, right in {
        "attend": {"query": ROW, "key": ROW, "value": ROW}, "check": {"notes": "no.toml"}, "chat": {"model": model},
        "attend_with_weights": {"x": ROW, "w_q": ROW, "w_k": ROW, "w_v": ROW}, "data": {},
        "classify": {"model": encoder, "texts": "a"}, "embed": {"model": encoder, "texts": "a"}, "exercise": {},
        "evaluate": {"model": model, "data": "t.txt", "max_samples": 1}, "explain": {"source": "i-love-ai"},
        "export_model": {"model": model, "folder": "out"}, "load": {"model": "stories"},
        "forward_pass": {"model": model, "text": "The", "story": False, "ablations": False},
        "generate": {"model": model, "prompt": "The", "max_tokens": 1}, "look": {"model": model, "text": "The pizza"},
        "import_model": {"source": "nothing/here", "offline": True}, "tokenize": {"model": model, "text": "The"},
        "logit_difference": {"first": "good", "second": "bad"}, "experiment": {"name": "no-such"},
        "plan": {"kind": "ngram", "data": "t.txt", "preset": "tiny", "steps": 1},
        "train": {"kind": "ngram", "data": "t.txt", "preset": "tiny", "steps": 1, "dry_run": True},
        "translate": {"model": translator, "text": "3 days", "max_tokens": 2},
        "sweep": {"model": model, "clean": "The", "metric": peasy.logit_difference("was", "is"), "method": "zero"},
    }.items():  # fmt: skip
        yield name, getattr(peasy, name), parameter_names(getattr(peasy, name)), right


def _calls_of_models():
    """Yield the methods of loaded models."""
    model, translator, encoder = (peasy.load(name) for name in ("stories", "locales-fr", "sentences"))
    for method, command, right in (
        (model.look, "look", {"text": "The pizza"}), (model.generate, "generate", {"prompt": "The", "max_tokens": 1}),
        (model.stream, "generate", {"prompt": "The", "max_tokens": 1}), (model.save, "", {"folder": "out"}),
        (translator.translate, "translate", {"text": "3 days", "max_tokens": 2}), (model.to, "", {}),
        (encoder.embed, "embed", {"texts": "a"}), (encoder.classify, "", {"texts": "a"}),
        (model.save_pretrained, "", {"folder": "out"}), (model.encode_prompt, "", {"text": "The"}),
    ):  # fmt: skip
        names = parameter_names(getattr(peasy, command) if command else method)
        yield f"model.{command or method.__name__}", method, [name for name in names if name != "model"], right


def _calls_of_edits():
    """Yield the edits, applied."""
    model = peasy.load("stories")
    for name, right in {
        "zero": {}, "mean": {"data": ["The oven"]}, "resample": {"data": [TEXT]}, "patch": {"source": "The soup"},
        "steer": {"vector": [0.0] * 96}, "scale": {"factor": 0.5}, "uniform": {}, "cut": {"query": "The", "key": "The"},
    }.items():  # fmt: skip

        def apply(name, **options):
            return model.look("The pizza", edit=getattr(peasy.edit, name)(**options))

        yield f"edit.{name}", partial(apply, name), parameter_names(getattr(peasy.edit, name)), right | {"layer": 1}


def _calls_of_results():
    """Yield the methods of results that take arguments."""
    model, translator, encoder = (peasy.load(name) for name in ("stories", "locales-fr", "sentences"))
    looked, right = model.look(TEXT), {"path": "out.json", "query": "it", "layer": 0, "head": 0, "name": "weights"}
    for result in (
        looked, translator.look("3 days ago"), translator.translate("3 days ago"), encoder.embed(["a", "b"]),
        looked.weights, peasy.explain("i-love-ai"), peasy.exercise(), looked.plot(), looked.attribution(),
    ):  # fmt: skip
        for name, method in inspect.getmembers(result, inspect.ismethod):
            needed = [p.name for p in inspect.signature(method).parameters.values() if p.default is p.empty]
            if not name.startswith("_") and name != "widget" and set(needed) <= set(right):
                names = [parameter for parameter in parameter_names(method) if parameter != "include"]
                yield f"{type(result).__name__}.{name}", method, names, {needs: right[needs] for needs in needed}


def _calls_of_formulas():
    """Yield the functions of the formula, additive scoring and the methods of steps."""
    for name, right in {
        "alibi": {"heads": 2, "n_query": 3}, "rotary": {"x": ROW}, "rotary_angles": {"n_time": 3, "d_key": 4},
        "sinusoidal": {"n_time": 3, "d_model": 4}, "layer_norm": {"x": ROW}, "rms_norm": {"x": ROW},
        "unnormalised_weights": {"query": ROW, "key": ROW}, "weighted_sum": {"weights": ROW, "value": ROW},
    }.items():  # fmt: skip
        function = getattr(peasy.formula, name)
        yield name, function, parameter_names(function), right

    def score(**weights):
        return peasy.attend(ROW, ROW, ROW, scoring=peasy.Additive(**weights))

    yield "Additive", score, ["w", "u", "v"], {"w": ROW, "u": ROW, "v": [1.0, 2.0]}
    steps = peasy.attend(ROW, ROW, ROW)
    for method in (steps.step, steps.with_steps, steps.with_captions):
        yield f"steps.{method.__name__}", method, parameter_names(method), {}


def _raw_errors(calls, share):
    """Return the wrong calls that end in something else than a result or a sentence, and the number of all."""
    found, count = [], 0
    for name, function, parameters, right in calls:
        for parameter in parameters:
            if parameter in CALLBACKS | {"options", "sampling", "where", "matrices"}:
                continue
            for kind in random.Random(f"{name} {parameter}").sample(sorted(UNUSABLE), int(share * len(UNUSABLE))):
                count += 1
                try:
                    result = function(**(right | {parameter: UNUSABLE[kind]()}))
                    list(itertools.islice(result, 2)) if inspect.isgenerator(result) else None
                except PeasyError:
                    pass
                except Exception as error:
                    found.append(f"{name}({parameter}={kind}): {error!r}"[:200])
    return found, count


CALLS = {
    "functions": _calls_of_functions, "models": _calls_of_models, "edits": _calls_of_edits,
    "results": _calls_of_results, "formulas": _calls_of_formulas,
}  # fmt: skip


ALL = pytest.param(1, 1000, id="all", marks=[pytest.mark.faults, pytest.mark.timeout(3600)])


@pytest.mark.parametrize("group", CALLS)
@pytest.mark.parametrize(("share", "least"), [pytest.param(0.06, 50, id="some"), ALL])
def test_wrong_arguments_get_a_sentence(group, share, least, isolated_home):
    Path("t.txt").write_text("The pizza is hot. " * 99, encoding="utf-8")
    found, count = _raw_errors(CALLS[group](), share)
    assert found == []
    assert count > least


def test_raw_errors_would_be_found(monkeypatch):
    """The inverse: without the check of arguments they reach the caller."""
    careless = [
        ("look", sys.modules["peasy.commands.look"].look, ["layers", "queries"], {"model": "stories", "text": "The"})
    ]
    assert _raw_errors(careless, 1)[0]


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b", Path("a\0b"), "folder/a\0b.html"])
def test_names_that_no_file_can_have(name, isolated_home):
    """At the public edge, and at the two functions through which every file and folder is written."""
    model = peasy.load("stories")
    suffixed = str(name) if str(name).endswith(".html") else f"{name}.html"
    for call in (
        partial(peasy.export_model, model, name), partial(model.save, name), partial(peasy.load, name),
        partial(peasy.explain("i-love-ai").save, suffixed), partial(write_atomic, name, "x"),
        partial(_make_folder, name),
        partial(peasy.evaluate, model, [name]), partial(peasy.train, "gpt", "stories", run=name, steps=1),
    ):  # fmt: skip
        with pytest.raises(PeasyError, match="cannot be the name of a file"):
            call()


def _make_folder(name):
    with atomic_dir(name):
        pass


def test_prompts_as_ids_in_python():
    model = peasy.load("stories")
    ids = model.encode_prompt("The pizza")
    wanted = model.generate("The pizza", max_tokens=4)
    for prompt in (ids, tuple(ids), [ids], torch.tensor(ids), np.array(ids)):
        assert model.generate(prompt, max_tokens=4).texts == wanted.texts
    assert "".join(model.stream(ids, max_tokens=4)) == wanted.texts[0]
    assert model.generate([ids, ids], max_tokens=4).texts == wanted.texts * 2
    assert model.generate(ids, max_tokens=1).completions[0].prompt == "The pizza"
    for call in (model.generate, model.encode_prompt):
        with pytest.raises(PeasyError, match="There is no token -1: the vocabulary has ids 0 to"):
            call([-1])


def test_a_loaded_model_tokenizes():
    model = peasy.load("stories")
    for add in (True, False):
        wanted = peasy.tokenize("stories", "The pizza", add_special_tokens=add)
        assert peasy.tokenize(model, "The pizza", add_special_tokens=add).data() == wanted.data()
    tokens = peasy.forward_pass(model, "The pizza", add_special_tokens=False, story=False).stacks[0].tokens
    assert list(tokens.ids) == model.encode_prompt("The pizza", add_special_tokens=False)


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        (lambda m: m.look("The", heads=[]), "No head is given"),
        (lambda m: m.look("The", layers=()), "No layer is given"),
        (lambda m: m.look("The", storage="int8"), 'There is no storage "int8"'),
        (lambda m: m.trace("The", heads=[]), "No head is given"),
        (lambda m: m.look([1, 2], padding_mask=[[1, 1], [1]]), "equally long rows"),
        (lambda m: m.generate("The", seed=True), "seed should be a whole number, not True"),
        (lambda m: m.generate("The", max_tokens=10**5000), "max_tokens is too large"),
        (lambda m: peasy.translate("locales-fr", "3 days", gold=[(0, 0)]), "gold should be a list"),
        (lambda m: peasy.translate("locales-fr", "3 days", length_penalty=1e308), "length_penalty"),
        (lambda m: m.look("The").heads("The", 1, 2), "without a name only query, top; 3 were given"),
        (lambda m: m.look("The").heads(), "heads needs query"), (lambda m: m.look("The").heads(1.5), "query should be"),
        (lambda m: m.look("The", edit=peasy.edit.zero(1, "x")), "head should be a whole number or None"),
        (lambda m: m.look("The", edit=peasy.edit.steer("x", 1)), "should be a list of numbers"),
        (lambda m: m.sweep("The", metric=lambda logits: logits[0], method="zero"), "one number for each row"),
        (lambda m: peasy.load("locales-fr").translate("3 days").alignment(nth=5), "There is no translation 5"),
        (lambda m: peasy.formula.alibi(10**9, 1), "heads is 1000000000"),
        (lambda m: peasy.formula.sinusoidal(0, 4), "n_time is 0"),
        (lambda m: peasy.formula.rotary([[1.0, 0.0]], base=0), "base is 0"),
        (lambda m: peasy.formula.rms_norm([[1.0]], eps=-1), "eps is -1"),
        (lambda m: peasy.formula.weighted_sum(np.ones((2, 1, 2)), np.ones((3, 2, 1))), "leading dimensions differ"),
        (lambda m: peasy.formula.weighted_sum(np.ones((1, 2, 1, 2)), np.ones((1, 0, 2, 1))), "leading dimensions"),
        (lambda m: peasy.formula.unnormalised_weights([[1.0]], [[1.0]], mask=[[True] * 2]), "mask is 1x2"),
        (lambda m: peasy.formula.unnormalised_weights([[1.0]], [[1.0]], bias=[[1.0] * 2]), "bias is 1x2"),
        (lambda m: peasy.attend([[1.0]], [[1.0]], [[1.0]]).step("score"), "There is no step"),
        (lambda m: m.to("nowhere"), "torch cannot move the model there"),
    ],
)  # fmt: skip
def test_sentences_of_single_guards(call, answer):
    with pytest.raises(PeasyError, match=answer):
        call(peasy.load("stories"))
