"""`explain`: names, files and sentences; selected views; errors and hostile input."""

import contextlib
import copy
import json
import pickle
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import peasy
from peasy.errors import InvalidInput, NotFound, PeasyError, UsageError
from peasy.views.document import Heading
from peasy.worked import example_names

HOSTILE = [
    "\x1b[31mred\x1b[0m",
    "<script>alert(1)</script>",
    "a\x00b",
    "\u202eabc",
    "👩‍👩‍👧",
    "שלום",
    "",
    " ",
    "|",
    "$\\input{x}$",
    "# x",
]


def test_attributes_and_notebook_display():
    love = peasy.explain("i-love-ai")
    assert love.tokens == ("I", "love", "AI")
    assert [step.name for step in love.steps][-4:] == ["scores", "scaled", "weights", "context"]
    np.testing.assert_allclose(love.weights[0], [0.1978, 0.4011, 0.4011], atol=1e-4)
    assert love.cell("weights", 0, 1).value == love.weights[0, 1]
    with pytest.raises(AttributeError, match="wieghts"):
        _ = love.wieghts
    assert "weights" in repr(love)
    assert set(love._repr_mimebundle_()) >= {"text/plain", "text/html"}
    for copied in (copy.copy(love), pickle.loads(pickle.dumps(love))):
        np.testing.assert_array_equal(copied.weights, love.weights)


def test_matrices_by_name():
    x, w = np.eye(2), [[1, 2], [3, 4]]
    worked = peasy.explain(x=x, w_q=w, w_k=w, w_v=w, causal=True)
    np.testing.assert_array_equal(worked.query, w)
    assert worked.tokens == ("0", "1")
    assert worked.masked[0, 1] == -np.inf
    crossed = peasy.explain(x=x, source_x=np.ones((3, 2)), w_q=w, w_k=w, w_v=w, source_tokens=["a", "b", "c"])
    assert crossed.worked.keys == ("a", "b", "c")
    np.testing.assert_allclose(crossed.weights, 1 / 3)
    for arguments, message in (
        ({"x": x, "querry": 0}, "no parameter querry. Did you mean query"),
        ({"source": "i-love-ai", "x": x}, "not both"),
        ({}, "nothing to explain"),
    ):
        with pytest.raises(PeasyError, match=message):
            peasy.explain(**arguments)


def test_a_cell_shows_its_arithmetic_in_a_notebook_and_at_the_prompt():
    cell = peasy.explain("i-love-ai").cell("weights", "I", "love")
    shown = cell._repr_mimebundle_()
    for text in (shown["text/html"], shown["text/plain"], repr(cell)):
        assert "share: 2.0281 / 5.0562 = 0.4011" in text


def test_rows_of_x_are_tokens_and_step_numbers_run_on_across_heads():
    document = peasy.explain("i-love-ai-two-heads").document()
    assert document.matrices()[0].row_axis == "token"
    numbers = [part.number for part in document.parts if isinstance(part, Heading)]
    assert numbers == list(range(1, 14))


def test_a_sentence_without_spaces_and_a_long_one():
    assert peasy.explain("我爱人工智能").tokens == tuple("我爱人工智能")
    words = " ".join(f"word{number}" for number in range(60))
    title = peasy.explain(words).document().title.removesuffix("...")
    assert 190 < len(title) < 200
    assert words.startswith(f"{title} ")


def test_a_repeated_word_is_asked_for_by_position():
    with pytest.raises(InvalidInput, match='"the" is at 2 positions') as error:
        peasy.explain("the cat and the dog", query="the")
    assert "0 or 3" in error.value.hint
    assert peasy.explain("the cat and the dog", query=3).selected_query == 3


def test_a_network_with_gradients_by_kind_name_and_chain():
    whole = peasy.explain("cross-entropy")
    gradients = peasy.explain("cross-entropy", step="gradients")
    assert [step["name"] for step in gradients.data()["steps"]] == ["loss.d_loss", "loss.d_token_loss", "d_logits"]
    assert len(gradients.document().matrices()) == 3 < len(whole.document().matrices())
    update = peasy.explain("cross-entropy", step="update").data()["steps"]
    assert [step["name"] for step in update] == ["new_logits", "after.loss.loss"]
    only = peasy.explain("cross-entropy", only="loss.probabilities")
    assert [matrix.name for matrix in only.document().matrices()] == ["loss.probabilities"]
    assert peasy.explain("cross-entropy", step="gradients", only="logits").selected_steps[0].name == "d_logits"
    chain = peasy.explain("cross-entropy", follow="d loss / d logits[0,1]")
    assert "loss.d_loss → loss.d_token_loss → d_logits" in chain.text()
    assert "Check: with 0.001 more" in chain.text()
    assert chain.data()["chain"]["value"] == pytest.approx(float(whole.d_logits[0, 1]))
    symbols = peasy.explain("cross-entropy", only="probabilities", symbolic=True)
    assert (
        "exp(logits[0,0]) / (exp(logits[0,0]) + exp(logits[0,1])"
        in symbols.data()["symbolic"]["tables"][0]["cells"][0][0]
    )
    for arguments, message in (
        ({"only": "losss"}, 'no step "losss"'), ({"causal": True}, "cannot change"), ({"query": "the"}, "no attention"),
    ):  # fmt: skip
        with pytest.raises(PeasyError, match=message):
            peasy.explain("cross-entropy", **arguments)
    with pytest.raises(NotFound, match="nothing of gradients"):
        peasy.explain("i-love-ai", step="gradients")


def test_one_table_as_a_latex_fragment():
    slide = peasy.explain("i-love-ai", only="weights", fragment=True).latex()
    assert slide.startswith("% Fragment for")
    assert slide.count("tabular") == 2


def test_biases_have_a_section():
    x = [[1, 0], [0, 1]]
    names = [
        m.name for m in peasy.explain(x=x, w_q=x, b_q=[1, 2], w_k=x, w_v=x, w_o=x, b_o=[1, 1]).document().matrices()
    ]
    assert {"b_q", "b_o"} <= set(names)


def test_data_has_the_documented_keys():
    data = peasy.explain("i-love-ai-causal").data()
    assert data["tokens"] == ["I", "love", "AI"]
    for step in data["steps"]:
        assert {"name", "tex", "description", "rows", "columns", "values"} <= set(step)
    masked = next(step for step in data["steps"] if step["name"] == "masked")
    assert masked["values"][0][1:] == [None, None]
    json.dumps(data, allow_nan=False)


def test_steps_that_do_not_exist_are_absent():
    assert [step["name"] for step in peasy.explain("easy-peasy").data()["steps"]] == ["weights"]


def test_steps_are_numbered_as_on_paper():
    numbers = [(part.number, part.text) for part in headings(peasy.explain("i-love-ai"))]
    assert numbers == [
        (1, "Input"), (2, "Query, key and value"), (3, "Scores"), (4, "Scale"), (5, "Softmax"), (6, "Weighted sum"),
    ]  # fmt: skip
    assert "Scale and mask" in [part.text for part in headings(peasy.explain("i-love-ai", causal=True))]


def headings(shown):
    return [part for part in shown.document().parts if type(part).__name__ == "Heading"]


@pytest.mark.parametrize("name", example_names())
@pytest.mark.parametrize("format", ["text", "md", "tex", "html", "csv", "json"])
def test_every_example_renders_in_every_format(name, format):
    from peasy import render

    assert render.draw(peasy.explain(name, contributions=True).document(), format)


def test_captions_are_those_of_the_formula():
    love, example = peasy.explain("i-love-ai"), peasy.explain("i-love-ai").worked.example
    steps = peasy.attend_with_weights(example.x, example.w_q, example.w_k, example.w_v)
    for matrix in love.document().matrices():
        if matrix.name in steps:
            assert (matrix.tex, matrix.description) == (
                steps.step(matrix.name).tex,
                steps.step(matrix.name).description,
            )


def test_every_displayed_cell_has_its_arithmetic():
    for matrix in peasy.explain("i-love-ai-two-heads").document().matrices():
        assert matrix.explain is not None
        assert matrix.explain(0, 0).lines


def test_selected_views_are_shown():
    assert "19.8 %" in peasy.explain("i-love-ai", query="I").text()
    assert "6. Weighted sum" not in peasy.explain("i-love-ai", query="I").text()
    assert "2.0281 / 5.0562 = 0.4011" in peasy.explain("i-love-ai", cell="weights,I,love").text()
    assert peasy.explain("i-love-ai", cell=("weights", 0, 1)).data()["cell"]["value"] == pytest.approx(0.4011, abs=1e-4)
    assert "0.4*v_0 + 0.6*v_1" in peasy.explain("easy-peasy", symbolic=True).text()
    assert peasy.explain("easy-peasy", symbolic=True).data()["symbolic"]["tables"][0]["cells"][3][2] == "q_3*k_2"
    assert "contributions to AI" in peasy.explain("i-love-ai", contributions=True).text()
    both = peasy.explain("i-love-ai-two-heads", query="AI", contributions=True)
    assert "Head 2" in both.text()
    assert len(both.data()["story"]) == 2


def test_decimals():
    assert "0.40 " in peasy.explain("i-love-ai", decimals=2).text()
    assert "e^0.71 = 2.03" in peasy.explain("i-love-ai", decimals=2, cell="weights,0,1").text()
    for wrong in (-1, 16):
        with pytest.raises(UsageError, match="decimals"):
            peasy.explain("i-love-ai", decimals=wrong)


def test_settings_change_the_example():
    np.testing.assert_array_equal(
        peasy.explain("i-love-ai", causal=True).weights, peasy.explain("i-love-ai-causal").weights
    )
    two = peasy.explain("i-love-ai", heads=2)
    np.testing.assert_array_equal(two.concat, peasy.explain("i-love-ai-two-heads").concat)
    np.testing.assert_allclose(
        peasy.explain("apple-orange", normalise="sum").weights[0, :2], [0.5858, 0.4142], atol=1e-4
    )
    np.testing.assert_array_equal(
        peasy.explain("apple-orange", normalize="sum").weights, peasy.explain("apple-orange", normalise="sum").weights
    )
    with pytest.raises(UsageError, match="the same setting"):
        peasy.explain("apple-orange", normalise="sum", normalize="softmax")
    assert peasy.explain("apple-orange", scoring="dot").scores[0, 1] == 6
    assert peasy.explain("i-love-ai-causal", causal=False).weights[0, 1] > 0
    assert not peasy.explain("apple-orange", normalise="sum").variants
    with pytest.raises(InvalidInput, match="weights are given"):
        peasy.explain("easy-peasy", heads=2)
    with pytest.raises(InvalidInput, match="scoring"):
        peasy.explain("i-love-ai", scoring="cosin")


def test_variants_are_shown_side_by_side():
    text = peasy.explain("apple-orange").text()
    for fragment in ("unnormalised", "0.57 Orange + 0.43 Apple", "0.40 Orange + 0.30 Apple + 0.15 And + 0.15 An"):
        assert fragment in text
    assert len(peasy.explain("apple-orange").data()["variants"]) == 4


def test_the_projection_plot():
    (plane,) = [part for part in peasy.explain("apple-similarity").document().parts if type(part).__name__ == "Plane"]
    assert ("Apple", 2.0, 2.0) in plane.points
    assert ("Apple on Orange", 0.0, 2.0) in plane.points
    (line,) = plane.lines
    across, along = np.subtract(line[:2], line[2:]), np.array([0.0, 3.0])
    assert across @ along == 0, "the residual is perpendicular"


def test_a_sentence_explains_how_its_vectors_were_made():
    pizza = peasy.explain("The pizza came out of the oven", causal=True)
    assert "from the letters of the words" in pizza.text()
    np.testing.assert_array_equal(pizza.x[0], pizza.x[5])


def test_files_and_typos(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('title = "mine"\ntokens = ["a", "b"]\nx = [[1, 0], [0, 1]]\n')
    assert peasy.explain("mine.toml").tokens == peasy.explain(tmp_path / "mine.toml").tokens == ("a", "b")
    for source, hint in (("i-love-ia", "Did you mean i-love-ai?"), ("zzzz", "peasy examples")):
        with pytest.raises(NotFound) as caught:
            peasy.explain(source)
        assert hint in caught.value.hint
    with pytest.raises(NotFound, match="no file"):
        peasy.explain("nowhere.toml")
    for name, hint in (("notes.md", "peasy check notes.md"), ("words.txt", "peasy explain - < words.txt")):
        (tmp_path / name).write_text("the cat sat")
        for source in (name, Path(name)):
            with pytest.raises(InvalidInput, match=f"{name} is not an example") as caught:
                peasy.explain(source)
            assert hint in caught.value.hint
    for empty in ("", "   ", "\n"):
        with pytest.raises(UsageError):
            peasy.explain(empty)
    with pytest.raises(UsageError, match="step,row,column"):
        peasy.explain("i-love-ai", cell="weights,0")
    with pytest.raises(NotFound, match="no step"):
        peasy.explain("i-love-ai", cell="wieghts,0,0")


@pytest.mark.parametrize("format", ["text", "md", "tex", "html", "csv", "svg"])
def test_hostile_tokens_are_shown_escaped(format):
    from peasy import render

    example = {"title": HOSTILE[0] + HOSTILE[1], "tokens": HOSTILE, "x": [[index, 1] for index in range(len(HOSTILE))]}
    selected = peasy.explain(example, query=0, contributions=True)
    output = render.draw(peasy.explain(example, contributions=True).document(), format)
    output += render.draw(selected.document(), format) + render.draw(
        peasy.explain(example, symbolic=True).document(), format
    )
    assert "\x1b" not in output
    assert "\x00" not in output
    assert "\u202e" not in output
    if format in ("html", "svg"):
        assert "<script>alert" not in output
    assert selected.data()["tokens"] == HOSTILE


@pytest.mark.parametrize(
    "text", [" ".join(HOSTILE), "a " * 500, "\ud800 b", "💥 💥", "a\x00b c", "日本 語", "…" * 3000 + " x"]
)
def test_any_sentence_is_explained_or_refused(text):
    with contextlib.suppress(NotFound, InvalidInput, UsageError):
        assert peasy.explain(text).text()


def test_ten_thousand_words_are_refused_quickly_and_in_little_memory():
    text = " ".join(f"word{index}" for index in range(10_000))
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(InvalidInput, match="10,000 queries on 10,000 keys"):
        peasy.explain(text)
    assert time.process_time() - started < 5
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_long_sentences_are_truncated_with_a_notice():
    text = peasy.explain(" ".join(f"word{index}" for index in range(300))).text()
    assert "left out" in text
    assert len(text) < 200_000


def test_every_step_is_an_attribute():
    for name in example_names():
        shown = peasy.explain(name)
        for step in shown.steps:
            np.testing.assert_array_equal(getattr(shown, step.name), step.values)
