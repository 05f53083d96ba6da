"""Architecture diagrams: every module is included, in order, in every format."""

import json

import pytest
from tests.models.tiny_models import ALL_MODELS, make

from peasy import render
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.views.document import Diagram
from peasy.views.model import model_document


def figure(model):
    document = model_document(model.describe())
    return next(part for part in document.parts if isinstance(part, Diagram))


@pytest.mark.parametrize("name", ALL_MODELS)
@pytest.mark.parametrize("format", ["text", "svg", "json", "html", "md", "tex", "csv"])
def test_every_model_can_be_drawn_in_every_format(name, format):
    model = make(ALL_MODELS[name])
    drawn = render.draw(model_document(model.describe(), name), format)
    assert all(block.name in drawn for column in figure(model).columns for block in column)


def test_modules_are_in_forward_order():
    before, after = (figure(build(preset(name), seed=None)) for name in ("gpt-tiny", "vaswani-base"))
    inside = [block.name for block in before.columns[0][1].nodes[0].nodes]
    assert inside == ["attention norm", "attention", "feed-forward norm", "feed-forward"]
    inside = [block.name for block in after.columns[1][1].nodes[0].nodes]
    assert inside[:4] == ["attention", "attention norm", "cross attention", "cross attention norm"]


def test_encoder_is_left_and_decoder_right():
    columns = figure(build(preset("vaswani-base"), seed=None)).columns
    assert [[block.name for block in column] for column in columns] == [
        ["embedding", "encoder"], ["target embedding", "decoder", "lm head"],
    ]  # fmt: skip


def test_tree_as_text():
    text = render.draw(model_document(build(preset("gpt2"), seed=None).describe(), "gpt2"))
    assert "124,439,808 parameters, 474.7 MiB of memory." in text
    assert "├─ 12 × block 0 … 11     norm, sublayer, add               each 7.1 M · 27.0 MiB" in text
    assert "│  ├─ attention          12 heads of 64, causal" in text
    assert max(map(len, text.splitlines())) <= 80


def test_json_has_every_module():
    model = build(preset("translator-tiny"), seed=None)
    data = json.loads(render.draw(model_document(model.describe()), "json"))
    (diagram,) = [part for part in data["parts"] if part["kind"] == "diagram"]
    names = []

    def walk(block):
        names.append(block["name"])
        for inner in block["nodes"]:
            walk(inner)

    for column in diagram["columns"]:
        for block in column:
            walk(block)
    assert {"cross attention", "query", "key", "value", "output", "up", "down", "lm head"} <= set(names)


def test_description_has_notebook_output():
    bundle = make(ALL_MODELS["rotary"]).describe()._repr_mimebundle_()
    assert "4 heads of 8, causal" in bundle["text/plain"]
    assert bundle["image/svg+xml"].startswith("<svg")
