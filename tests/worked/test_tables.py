"""Readers of notes: the same notes in Markdown, LaTeX, CSV and TOML, and unreadable files."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peasy.errors import InvalidInput, NotFound, PeasyError
from peasy.worked.checking import check
from peasy.worked.checking.step_aliases import CAPTIONS, parse_caption
from peasy.worked.tables import read_notes, read_text
from peasy.worked.tables.sheet import split_labels

MARKDOWN = """# Notes

- causal: false

**X**

| | A_1 | A_2 |
|---|---|---|
| I | 1 | 0 |
| love | 0 | 1 |
| AI | 1 | 1 |

$$W_Q = \\begin{bmatrix} 1 & 0 \\\\ 1 & 1 \\end{bmatrix}, W_K = \\begin{bmatrix} 0 & 1 \\\\ 1 & 0 \\end{bmatrix}$$

## 3. Scores: QK^T

| q \\ k | I | love | AI |
|--:|--:|--:|--:|
| **I** | 0 | 1 | `1` |
| love | 1 | **1** | 3 |
| AI | 1 | 2 | 3 |

scaled scores:

| | I | love | AI |
|---|---|---|---|
| love | 1/√2 | 0,71 | 2.12 |
"""
LATEX = r"""\documentclass{article}\begin{document}
% causal: false
\[ X = \begin{matrix} & \begin{matrix} A_1 & A_2 \end{matrix} \\ \begin{matrix} I \\ love \\ AI \end{matrix} &
\begin{bmatrix} 1 & 0 \\ 0 & 1 \\ 1 & 1 \end{bmatrix} \end{matrix} \]
\begin{align*}
W_Q &= \begin{pmatrix} 1 & 0 \\ 1 & 1 \end{pmatrix} \\ % the queries
W_K &= \left[\begin{array}{cc} 0 & 1 \\ 1 & 0 \end{array}\right]
\end{align*}
\begin{table}\centering
\begin{tabular}{l|rrr} \toprule
 & I & love & AI \\ \midrule
I & $0$ & 1 & 1 \\
love & 1 & \textbf{1} & 3 \\[2pt]
AI & 1 & 2 & 3 \\ \bottomrule
\end{tabular}
\caption{Scores $QK^T$}
\end{table}
$$\text{Scaled Score} = \begin{tabular}{lrrr} & I & love & AI \\
love & $\frac{1}{\sqrt{2}}$ & 0{,}71 & 2.12 \end{tabular}$$
\end{document}
"""
CSV = """causal,false

X,A_1,A_2
I,1,0
love,0,1
AI,1,1

W_Q
1,0
1,1

W_K
0,1
1,0

scores,I,love,AI
I,0,1,1
love,1,1,3
AI,1,2,3

scaled
,I,love,AI
love,1/√2,"0,71",2.12
"""
TOML = """title = "Notes"
tokens = ["I", "love", "AI"]
x = [[1, 0], [0, 1], [1, 1]]
w_q = [[1, 0], [1, 1]]
w_k = [[0, 1], [1, 0]]

[[written]]
table = "scores"
cells = [["0", "1", 1], ["1", "1", 3], ["1", "2", "3"]]

[[written]]
table = "scaled"
rows = ["love"]
cells = [["1/√2", "0,71", 2.12]]
"""
FORMATS = {".md": MARKDOWN, ".tex": LATEX, ".csv": CSV, ".toml": TOML}


@pytest.fixture
def write(tmp_path):
    def put(name, content):
        path = tmp_path / name
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content, encoding="utf-8")
        return path

    return put


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_notes_in_four_formats(suffix, write):
    (example,) = read_notes(write(f"notes{suffix}", FORMATS[suffix])).parts
    checked = check(example)
    assert example.tokens == ("I", "love", "AI")
    not_right = [(c.table, c.row, c.column, c.expected, c.verdict) for c in checked.cells if c.verdict != "right"]
    assert not_right == [
        ("scores", "love", "AI", 2.0, "wrong"),
        ("scaled", "love", "AI", pytest.approx(2**0.5), "follows"),
    ]
    assert checked.count("right") == 10
    assert not checked.rows


@pytest.mark.parametrize(
    ("caption", "step"),
    [
        ("X", "x"), ("Input embeddings", "x"), ("W_Q", "w_q"), ("$W^Q$", "w_q"), ("W_{Q}", "w_q"), ("Query", "query"),
        ("Q = XW_Q", "query"), ("K^T", "key_transposed"), ("K^{\\top}", "key_transposed"), ("Kᵀ", "key_transposed"),
        ("QK^T", "scores"), ("QKᵀ", "scores"), ("Q · Kᵀ", "scores"), ("Attention scores", "scores"),
        ("\\frac{QK^T}{\\sqrt{d_k}}", "scaled"), ("QKᵀ/√d_k", "scaled"), ("Scaled Score", "scaled"),
        ("4. Scaled scores (divide by √2)", "scaled"), ("Masked", "masked"), ("softmax", "weights"),
        ("Attention weights", "weights"), ("Table 2: Attention weights", "weights"), ("**weights**:", "weights"),
        ("\\operatorname{softmax}\\left(\\frac{Q K^{\\top}}{\\sqrt{d_k}}\\right)", "weights"), ("e^x", "powers"),
        ("Context vectors", "context"), ("Query matrix Q", "query"), ("Values V", "value"),
        ("Weight matrix W_Q", "w_q"),
        ("Attention weights A", "weights"), ("Scaled scores S", "scaled"), ("\\frac{1}{\\sqrt{2}} QK^T", "scaled"),
        ("Scores / √d_k", "scaled"), ("QK^T / √2", "scaled"), ("softmax(QK^T/√2) V", "context"), ("[scores]", "scores"),
        ("QK^T/√d_k + M", "masked"), ("A = softmax(S)", "weights"), ("\\mathbf{K}^\\top", "key_transposed"),
        ("Queries", "query"), ("z", "context"), ("Step 6: context", "context"), ("Final output", "context"),
    ],
)  # fmt: skip
def test_captions_as_people_write_them(caption, step):
    assert parse_caption(caption) == (step, None)


@pytest.mark.parametrize(
    "caption", ["scores head 2", "head-2.scores", "Head 2: scores", "scores (head 2)", "scores, head 2"]
)
def test_captions_of_heads(caption):
    assert parse_caption(caption) == ("scores", 2)


@pytest.mark.parametrize(
    "caption", ["", "Dear diary", "see below", "the table", "1", "x" * 500, "weights and biases of life"]
)
def test_captions_that_name_no_step(caption):
    assert parse_caption(caption) is None


def test_caption_below_its_table():
    text = "| | 0 |\n|-|-|\n| a | 3 |\n\n: X\n\n| | a |\n|-|-|\n| a | 9 |\n\nTable: Attention scores\n"
    assert [table.table for table in read_text(text).parts[0].written] == ["x", "scores"]


def test_short_form_of_written_tables(write):
    text = TOML[: TOML.index("[[written]]")] + '[written]\nscores = [["0", "1", 1], [1, 1, 3], [1, 2, 3]]\n'
    (example,) = read_notes(write("short.toml", text)).parts
    assert check(example).count("wrong") == 1


def test_every_short_caption_names_its_step():
    assert {step: parse_caption(caption) for step, caption in CAPTIONS.items()} == {
        step: (step, None) for step in CAPTIONS
    }


def test_heads_under_headings():
    text = "X:\n\n|a|b|\n|-|-|\n|1|0|\n\nW_Q:\n\n|a|b|\n|-|-|\n|1|0|\n|0|1|\n\n"
    text += text[text.index("W_Q") :].replace("W_Q", "W_K") + text[text.index("W_Q") :].replace("W_Q", "W_V")
    text += "## Head 1\n\nscores:\n\n|x_1|\n|-|\n|1|\n\n## Head 2\n\nscores:\n\n|x_1|\n|-|\n|5|\n"
    (example,) = read_text(text).parts
    assert example.heads == 2
    assert [(cell.table, cell.verdict) for cell in check(example).cells] == [
        ("head-1.scores", "right"), ("head-2.scores", "wrong"),
    ]  # fmt: skip


def test_source_and_target_sentences():
    text = "X\n1,0\n1,1\n\nsource\n0,1\n1,1\n\nW_Q\n1,0\n1,1\n\nW_K\n0,1\n1,0\n\nscores\n1,1\n2,3\n"
    (example,) = read_text(text, ".csv").parts
    assert len(example.keys) == 2
    assert example.source_tokens
    assert {cell.verdict for cell in check(example).cells} == {"right"}


def test_settings_in_lines():
    text = "mask: causal\nscoring: dot\n**normalise:** sum\nscale: 1/2\nheads: 1\ntokens: a, b\n\n" + MARKDOWN[20:]
    (example,) = read_text(text.replace("- causal: false", "").replace("love", "b").replace("| I |", "| a |")).parts
    assert (example.causal, example.scoring, example.normalise, example.scale) == (True, "dot", "sum", 0.5)
    assert example.tokens == ("a", "b")


@pytest.mark.parametrize(
    "line", ["casual: true", "scorring: dot", "normalize : cosinus", "heads: two", "causal: maybe"]
)
def test_misspelt_settings_are_rejected(line):
    with pytest.raises(InvalidInput):
        read_text(f"{line}\n\n{MARKDOWN.replace('causal: false', '')}")


@pytest.mark.parametrize("line", ["Note: this is true", "Remember: dot the i", "Result: 42", "Sum: 5.06"])
def test_prose_is_not_a_setting(line):
    assert read_text(f"{line}\n\n{MARKDOWN}").parts[0].causal is False


def test_tables_in_code_fences_and_unknown_captions_are_left_out():
    fenced = "```\n**scores**\n\n| a |\n|---|\n| 9 |\n```\n"
    holidays = "\n**My holidays**\n\n| day | sun |\n|---|---|\n| 1 | 7 |\n"
    notes = read_text(MARKDOWN + fenced + holidays)
    assert [table.table for table in notes.parts[0].written] == ["x", "w_q", "w_k", "scores", "scaled", ""]
    checked = check(notes.parts[0])
    assert [unread.table for unread in checked.unread] == ["My holidays"]


def test_escaped_bars_and_hostile_tokens_are_text():
    text = "**X**\n\n| | 0 |\n|---|---|\n| a\\|b | 1 |\n| \\<script\\> | 2 |\n\n"
    text += "**scores**\n\n| | 0 | 1 |\n|-|-|-|\n| a\\|b | 1 | 2 |\n"
    (example,) = read_text(text).parts
    assert example.tokens == ("a|b", "<script>")
    assert check(example).passed


def test_semicolons_allow_decimal_commas():
    (example,) = read_text("X\n0,5\n\nscores\n0,25\n".replace("\n0", "\n0"), ".csv").parts
    assert len(example.written[0].cells[0]) == 2
    (example,) = read_text("X;\n0,5;1\n\nscores;\n1,25;\n", ".csv").parts
    assert check(example).passed


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.md", "", "is empty"),
        ("blank.md", " \n\n ", "is empty"),
        ("prose.md", "no table here", "No table has a caption"),
        ("uncaptioned.md", "| a |\n|---|\n| 1 |\n", "No table has a caption"),
        ("binary.md", b"\xff\xfe\x00\x01\x02", "not UTF-8 text"),
        ("zero.csv", b"X\n1\x00\n", "NUL bytes"),
        ("broken.toml", "title = ", "not valid TOML"),
        ("list.json", "[1, 2]", "should be a table"),
        ("unknown.toml", TOML.replace("w_k", "w_x"), "unknown key"),
        ("types.toml", TOML.replace('["I", "love", "AI"]', "3"), "should be a list"),
        ("ragged.toml", TOML.replace("x = [[1, 0], [0, 1], [1, 1]]", "x = [[1, 0], [0], [1, 1]]"), "different lengths"),
        ("nothing.toml", TOML[: TOML.index("[[written]]")], "no written tables"),
        ("parts.toml", "title = 't'\nparts = []", "no written tables"),
        ("notes.docx", "PK", "cannot be checked"),
        ("huge.md", "x" * 4_000_001, "4,000,001 bytes"),
    ],
)
def test_unreadable_files_are_reported(write, name, content, message):
    path = write(name, content)
    with pytest.raises(InvalidInput, match=message):
        [check(part) for part in read_notes(path).parts]


def test_missing_file_suggests_the_closest(tmp_path, write):
    write("notes.md", MARKDOWN)
    with pytest.raises(NotFound) as caught:
        read_notes(tmp_path / "note.md")
    assert caught.value.hint == "Did you mean notes.md?"
    (tmp_path / "folder.md").mkdir()
    with pytest.raises(InvalidInput, match="not a file"):
        read_notes(tmp_path / "folder.md")


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([".md", ".tex", ".csv"]), st.data())
def test_mutilated_notes_give_a_result_or_a_clear_error(suffix, data):
    text = FORMATS[suffix]
    for _ in range(data.draw(st.integers(1, 4))):
        start, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(st.text(max_size=8)) + text[start + length :]
    try:
        for part in read_text(text, suffix).parts:
            check(part)
    except PeasyError:
        pass


BOMBS = {
    "bars": "|" * 50_000,
    "rulers": "-|" * 50_000 + "\n" + "-|" * 50_000, "braces": "{" * 50_000, "equals": "a=" * 50_000,
    "stars": "**" * 50_000, "bold": "**a " * 30_000, "begins": r"\begin{bmatrix}" * 5_000,
    "matrices": r"Q = \begin{bmatrix} 1 \end{bmatrix}" * 3_000, "tables": "| a |\n|---|\n| 1 |\n" * 3_000,
    "bold cell": "| a |\n|---|\n| " + "**a " * 30_000 + "|\n", "blocks": "scores\n1\n\n" * 3_000,
    "captions": "# scores\n" * 20_000 + "| a |\n", "percent": "%" * 50_000, "labels": r"\begin{matrix} & " * 3_000,
}  # fmt: skip


@pytest.mark.timeout(10)
@pytest.mark.parametrize("suffix", [".md", ".tex", ".csv"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_pathological_input_is_fast(suffix, bomb):
    with contextlib.suppress(InvalidInput):
        [check(part) for part in read_text(BOMBS[bomb], suffix).parts]


def test_lead_in_sentences_name_tables():
    text = "We take the weights\n\n| | a |\n|-|-|\n| a | 1 |\n\nand the values V:\n\n| | 0 |\n|-|-|\n| a | 3 |\n\n"
    text += "so the output is\n\n| | 0 |\n|-|-|\n| a | 4 |\n"
    (example,) = read_text(text).parts
    assert [table.table for table in example.written] == ["weights", "value", "output"]
    assert [cell.verdict for cell in check(example).cells] == ["wrong"]


def test_caption_in_the_corner_cell():
    assert read_text("| weights | a |\n|-|-|\n| a | 1 |\n").parts[0].tokens == ("a",)


def test_chains_of_equals_signs():
    one = r"\begin{pmatrix} 1 \end{pmatrix}"
    text = f"$V = {one}$ $A = {one}$ $Z = AV = {one}$"
    assert [table.table for table in read_text(text, ".tex").parts[0].written] == ["value", "weights", "context"]


def test_crosses_above_the_diagonal_imply_causal_unless_set():
    text = "**X**\n\n| 1 |\n|-|\n| 2 |\n\n**weights**\n\n| | a | b |\n|-|-|-|\n| a | 1 | x |\n| b | 0.12 | 0.88 |\n"
    assert read_text(text).parts[0].causal is True
    assert read_text("causal: no\n\n" + text).parts[0].causal is False
    assert read_text(text.replace("0.12", "x")).parts[0].causal is False


def test_formula_above_the_weights_sets_the_scoring():
    text = "**X**\n\n| 1 | 1 |\n|-|-|\n\n**weights**\n\n$$\n\\text{softmax}(FORMULA)\n$$\n\n| | a |\n|-|-|\n| a | 1 |\n"
    assert read_text(text.replace("FORMULA", "QK^T")).parts[0].scoring == "dot"
    assert read_text(text.replace("FORMULA", "\\frac{QK^T}{\\sqrt{d_k}}")).parts[0].scoring == "scaled-dot"
    assert read_text("scoring: cosine\n" + text.replace("FORMULA", "QK^T")).parts[0].scoring == "cosine"


def test_a_named_table_is_not_renamed_by_its_formula():
    text = MARKDOWN + "\n**only the related words**\n\n$$\nsoftmax(QK^T)\n$$\n\n| | a |\n|-|-|\n| a | 1 |\n"
    assert [table.description for table in read_text(text).parts[0].written if not table.table] == [
        "only the related words"
    ]


@pytest.mark.parametrize(
    ("header", "is_row"),
    [
        (("I", "1", "0"), True), (("I", "0.2", "0.8"), True), (("", "1", "0"), False), (("I", "0", "1"), False),
        (("I", "1", "2"), False), (("query ↓ key →", "1", "0"), False), ((r"q \ k", "3", "1"), False),
        (("I", "love", "AI"), False), (("I", "", ""), False),
    ],
)  # fmt: skip
def test_a_header_of_numbers_is_a_row_and_is_not_lost(header, is_row):
    """Markdown requires a header, so a table without one has its first row there."""
    cells, *_ = split_labels(list(header), [["love", "1", "1"]])
    assert len(cells) == 1 + is_row
