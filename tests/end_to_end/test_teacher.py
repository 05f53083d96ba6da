"""A lecturer's session: notes with a wrong cell, a report, corrected notes, tables for the slides, a worksheet."""

import re
from pathlib import Path

NOTES = """# I love AI

**X**

|      | 1 | 2 |
|------|---|---|
| I    | 1 | 0 |
| love | 0 | 1 |
| AI   | 1 | 1 |

**Q**

|      | 1 | 2 |
|------|---|---|
| I    | 1 | 0 |
| love | 1 | 1 |
| AI   | 2 | 1 |

**K**

|      | 1 | 2 |
|------|---|---|
| I    | 0 | 1 |
| love | 1 | 0 |
| AI   | 1 | 1 |

**scores**

|      | I | love | AI |
|------|---|------|----|
| I    | 0 | 1    | 1  |
| love | 1 | 1    | 2  |
| AI   | 1 | 2    | 3  |

**scaled**

|      | I    | love | AI   |
|------|------|------|------|
| I    | 0    | 0.71 | 0.71 |
| love | 0.71 | 0.71 | 0.71 |
| AI   | 0.71 | 1.41 | 2.12 |

**weights**

|      | I    | love | AI   |
|------|------|------|------|
| I    | 0.20 | 0.40 | 0.40 |
| love | 0.25 | 0.25 | 0.50 |
| AI   | 0.14 | 0.28 | 0.58 |
"""
WRONG_ROW = "| love | 0.71 | 0.71 | 0.71 |"


def test_notes_are_checked_and_corrected(peasy):
    Path("notes.md").write_text(NOTES, encoding="utf-8")

    ran = peasy("check", "notes.md", "--json")
    assert ran.code == 8
    wrong = [(c["table"], c["row"], c["column"]) for c in ran.json["result"]["cells"] if c["verdict"] == "wrong"]
    assert wrong == [("scaled", "love", "AI")]

    ran = peasy("check", "notes.md", "--out", "report.html")
    assert ran.code == 8
    assert "Saved report.html" in ran.err
    page = Path("report.html").read_text(encoding="utf-8")
    assert page.lower().startswith("<!doctype html>")
    assert not re.search(r"""(src|href)=["']?https?:""", page)

    Path("notes.md").write_text(NOTES.replace(WRONG_ROW, "| love | 0.71 | 0.71 | 1.41 |"), encoding="utf-8")
    assert peasy("check", "notes.md").code == 0


def test_tables_for_slides(peasy):
    for name, opening in {"love.tex": "\\documentclass", "love.svg": "<svg", "love.md": "# ", "love.csv": ""}.items():
        assert peasy("explain", "i-love-ai", "--out", name).code == 0
        text = Path(name).read_text(encoding="utf-8")
        assert text.lstrip().startswith(opening) or opening in text[:400]
    assert "0.4011" in Path("love.md").read_text(encoding="utf-8")


def test_an_empty_worksheet_has_no_mistakes(peasy):
    sheet = peasy("exercise", "--seed", "5", "--out", "sheet.md")
    assert sheet.code == 0
    assert Path("sheet.md").exists()
    assert peasy("check", "sheet.md").code == 0
