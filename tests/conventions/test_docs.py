"""What is generated is fresh, and what is linked is there."""

import re

import pytest

PAGES = [
    "README.md",
    "docs/architecture.md",
    "docs/axes.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/coverage.md",
    "docs/python.md",
    "docs/pictures/i-love-ai.svg",
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_generated_pages_are_fresh(page, root, generate):
    assert (root / page).read_text(encoding="utf-8") == generate.PAGES[page](), "run `make docs`"


def test_every_generated_page_is_looked_at(generate):
    assert list(generate.PAGES) == PAGES


def test_a_changed_card_makes_the_map_stale(generate, monkeypatch):
    monkeypatch.setattr(generate, "headline", lambda room: "SOMETHING ELSE: new.")
    assert "README.md" in [name for name in ("README.md",) if generate.readme() != (generate.ROOT / name).read_text()]


def test_links_lead_somewhere(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    assert len(pages) > 5
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert not broken


def test_where_do_i_add_x_names_real_places(root):
    """Every folder of CONTRIBUTING's table is there, and so is every file to imitate in it."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert text.startswith("# Where do I add X?\n")
    rows = [line.split("|")[2:4] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for places, imitate in rows:
        folders = [root / name for name in re.findall(r"`([^`]+)`", places)]
        assert not [folder for folder in folders if not folder.exists()]
        homes = [folder if folder.is_dir() else folder.parent for folder in folders] + [root / "src/peasy"]
        files = re.findall(r"`([\w/.-]+\.(?:py|toml))`", imitate)
        assert not [name for name in files if not any((home / name).exists() for home in homes)]
