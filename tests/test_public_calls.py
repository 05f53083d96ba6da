"""Public functions answer wrong arguments in a sentence, never with a raw Python error."""

import contextlib
import inspect

import pytest

import peasy
from peasy.errors import PeasyError

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
    ],
)
def test_the_right_name_is_in_the_answer(name, arguments, answer):
    with pytest.raises(PeasyError, match=answer.replace("?", r"\\?")):
        getattr(peasy, name)(**arguments)
