"""What is generated is fresh, and what is linked is there."""

import re

import pytest

PAGES = [
    "README.md",
    "docs/architecture.md",
    "docs/axes.md",
    "docs/cli.md",
    "docs/configuration.md",
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
