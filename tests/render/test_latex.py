"""LaTeX output: escaping, and compilation if LaTeX is installed."""

import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from tests.render.conftest import HOSTILE, every_part, matrix

from peasy.render import latex
from peasy.render.tex import UnknownTeX
from peasy.views.document import Document, Formula, Matrix

LATEX = [name for name in ("pdflatex", "lualatex") if shutil.which(name)]
COMMAND = re.compile(r"\\[A-Za-z]+")


def body_of(text):
    return text.partition("\\begin{document}")[2]


def test_a_matrix_is_a_table_with_its_name_and_formula():
    drawn = body_of(latex.draw(Document("t", (matrix(shaded=False, marks=frozenset()),))))
    assert r"\textbf{weights}\quad $\displaystyle \operatorname{softmax}" in drawn
    assert r"\textbf{love} & $0.2483$ & $0.2483$ & $0.5035$ \\" in drawn


def test_escaped_text_contains_only_harmless_commands():
    harmless = set(COMMAND.findall("".join(latex._ESCAPES.values())))
    for word in HOSTILE:
        escaped = latex.escape(word)
        assert set(COMMAND.findall(escaped)) <= harmless
        rest = COMMAND.sub("", escaped)
        assert not re.search(r"(?<!\\)[$&#%_~^]", rest)


def test_text_cannot_end_the_document():
    drawn = latex.draw(Document(r"\end{document}", every_part(r"\end{document}\input{/etc/passwd}")))
    assert drawn.count(r"\end{document}") == 1
    assert r"\input" not in drawn


def test_without_the_escape_it_would(monkeypatch):
    monkeypatch.setattr(latex, "escape", lambda text: text)
    assert latex.draw(Document(r"\end{document}", ())).count(r"\end{document}") == 2


def test_unsupported_formulas_are_rejected():
    for source in (r"\input{x}", r"x \end{document}"):
        with pytest.raises(UnknownTeX):
            latex.draw(Document("t", (Formula(source),)))


def test_numbers_keep_their_signs():
    drawn = latex.draw(Document("t", (Matrix("m", ((-1.5, float("-inf"), float("nan")),), ("a",), ("x", "y", "z")),)))
    assert r"$-1.5$ & $-\infty$ & not a number" in drawn


def test_the_first_line_names_the_engine_that_characters_need():
    assert latex.draw(Document("Zürich → ∞", ())).startswith("\\documentclass")
    chinese = latex.draw(Document("我爱", ()))
    assert chinese.splitlines()[0] == "% !TeX program = lualatex"
    assert chinese.splitlines()[1].endswith("in place of 我 爱")


@pytest.mark.skipif(not LATEX, reason="no LaTeX on this machine")
@pytest.mark.parametrize("program", LATEX)
def test_it_compiles(program, worked, everything, tmp_path):
    (tmp_path / "part.tex").write_text(latex.draw(replace(worked, fragment=True)), encoding="utf-8")
    slide = r"\documentclass{article}\usepackage{amsmath,graphicx,color}\begin{document}\input{part}\end{document}"
    texts = {"worked": latex.draw(worked), "everything": latex.draw(everything), "slide": slide}
    compile_all(program, texts, tmp_path)


def test_a_fragment_has_no_preamble(worked):
    drawn = latex.draw(replace(worked, fragment=True))
    assert drawn.startswith("% Fragment for \\input")
    assert "\\documentclass" not in drawn
    assert "\\begin{document}" not in drawn
    assert body_of(latex.draw(worked)).count("tabular") == drawn.count("tabular") > 2


@pytest.mark.slow
@pytest.mark.skipif(not LATEX, reason="no LaTeX on this machine")
@pytest.mark.parametrize("program", LATEX)
def test_hostile_strings_compile(program, hostile, tmp_path):
    compile_all(program, {"hostile": latex.draw(hostile)}, tmp_path)


def compile_all(program, texts, folder):
    for name, text in texts.items():
        (folder / f"{name}.tex").write_text(text, encoding="utf-8")
        ran = subprocess.run(
            [program, "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", f"{name}.tex"],
            cwd=folder, capture_output=True, timeout=280, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stdout.decode("utf-8", "replace")[-3000:]
        assert (folder / f"{name}.pdf").read_bytes().startswith(b"%PDF")
