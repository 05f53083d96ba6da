"""TeX captions as MathML and plain text: every caption of `formula` renders; unknown commands fail."""

import importlib
import pkgutil
import xml.etree.ElementTree as ElementTree

import pytest

import peasy.formula
from peasy.formula import Additive, FormulaStep, attend, attend_with_weights
from peasy.formula.scoring import NORMALISATIONS, SCORINGS
from peasy.render import tex

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
TOKENS = {"mi", "mn", "mo", "mtext", "mspace"}
ARITY = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3, "munderover": 3}


def module_captions():
    """Yield the caption of every Step defined in `formula`."""
    for found in pkgutil.iter_modules(peasy.formula.__path__, "peasy.formula."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, FormulaStep):
                yield value.tex.replace("%s", "X")


def computed_captions():
    """Yield the captions for all combinations of scoring, normalisation, scale, mask and heads."""
    eye, ones = [[1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0]]
    scorings = [*SCORINGS, Additive(eye, eye, [1.0, 1.0])]
    for scoring in scorings:
        for normalise in NORMALISATIONS:
            for options in ({}, {"scale": 0.5}, {"softcap": 30.0}, {"causal": True}, {"scale": 1e-9, "softcap": 2.5}):
                if normalise == "sum":
                    options = options | {"bias": [[1.0, 1.0], [1.0, 1.0]]}
                steps = attend(eye, eye, ones, scoring=scoring, normalise=normalise, **options)
                yield from (step.tex for step, _ in steps.step_arrays())
    for options in ({}, {"heads": 2}, {"w_o": eye}, {"heads": 2, "w_o": eye, "causal": True}, {"source": eye}):
        yield from (step.tex for step, _ in attend_with_weights(eye, eye, eye, eye, **options).step_arrays())


def check_tree(element):
    """Check MathML rules: token elements contain text, others a fixed number of children."""
    name = element.tag.removeprefix(NAMESPACE)
    if name in TOKENS:
        assert len(element) == 0
    else:
        assert not (element.text or "").strip()
        assert len(element) == ARITY.get(name, len(element)), name
    for child in element:
        check_tree(child)


@pytest.mark.parametrize("caption", sorted({*module_captions(), *computed_captions()}))
def test_every_caption_of_the_formula_can_be_drawn(caption):
    check_tree(ElementTree.fromstring(tex.mathml(caption)))
    text = tex.to_plain_text(caption)
    assert text
    assert "\\" not in text
    assert "{" not in text


def test_there_are_captions():
    assert len({*module_captions(), *computed_captions()}) > 30


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\frac{Q K^{\top}}{\sqrt{d_k}} + M", "QKᵀ / √d_k + M"),
        (r"Q = X W_Q", "Q = X W_Q"),
        (r"\frac{\langle q_i, k_j \rangle}{\lVert q_i \rVert \, \lVert k_j \rVert}", "⟨q_i, k_j⟩ / (‖q_i‖ ‖k_j‖)"),
        (r"v^{\top} \tanh(W q_i + U k_j)", "vᵀ tanh(W q_i + U k_j)"),
        (r"\operatorname{Concat}(\text{head}_1, \dots, \text{head}_h) W^O", "Concat(head_1, …, head_h) W^O"),
        (r"\frac{a + b}{c} V", "((a + b) / c) V"),
        (r"\sqrt{a + b}", "√(a + b)"),
        (r"e^{-x}", "e^−x"),
        (r"x^2", "x²"),
        (r"-x", "−x"),
        (r"\sum_{j} e^{x_j}", "∑_j e^x_j"),
    ],
)
def test_formula_as_plain_text(source, text):
    assert tex.to_plain_text(source) == text


def test_mathml_of_a_known_formula():
    tree = ElementTree.fromstring(tex.mathml(r"\frac{Q K^{\top}}{\sqrt{d_k}}"))
    fraction = tree[0]
    assert [element.tag.removeprefix(NAMESPACE) for element in fraction.iter()] == [
        "mfrac", "mrow", "mi", "msup", "mi", "mo", "msqrt", "msub", "mi", "mi",
    ]  # fmt: skip
    assert "".join(fraction.itertext()) == "QK⊤dk"


@pytest.mark.parametrize(
    "source",
    [r"\unknown", r"\input{x}", r"\end{document}", r"\text{\input{x}}", r"\text{$}", "{a", "a}", r"\left( a",
     r"\right)", "x_",
     "x^a^b", "x_a_b", r"\frac{a}", "é", "$", "%", "#", "&", "~", '"', "`", r"\left< a \right>", r"\write18{ls}"],
)  # fmt: skip
def test_unknown_tex_is_rejected(source):
    with pytest.raises(tex.UnknownTeX):
        tex.parse(source)


def test_words_are_escaped_in_mathml():
    assert ElementTree.fromstring(tex.mathml(r"\text{a \& b}"))[0].text == "a & b"
    assert ElementTree.fromstring(tex.mathml("a < b"))[0][1].text == "<"
