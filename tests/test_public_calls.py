"""Public functions answer wrong arguments in a sentence, never with a raw Python error."""

import contextlib
import inspect

import numpy as np
import pytest

import peasy
from peasy.errors import PeasyError, UsageError

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
        ("generate", {"model": "stories", "prompt": 3}, "prompt should be a text or a list"),
        ("tokenize", {"model": "stories"}, "tokenize needs text"),
        ("generate", {"model": "stories", "prompt": [1, 2]}, "not list of int"),
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
    with pytest.raises(PeasyError, match="A prompt should be a text"):
        model.encode_prompt(prompt)
    with pytest.raises(PeasyError, match="should be a text"):
        next(model.stream(prompt))
