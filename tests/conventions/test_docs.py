"""Generated pages are fresh, links lead to existing files, and CONTRIBUTING names existing files."""

import re

import pytest

PAGES = [
    "README.md",
    "docs/architecture.md",
    "docs/axes.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/coverage.md",
    "docs/glossary.md",
    "docs/python.md",
    "docs/settings.md",
    "docs/pictures/i-love-ai.svg",
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", PAGES)
def test_generated_pages_are_fresh(page, root, generate):
    assert (root / page).read_text(encoding="utf-8") == generate.PAGES[page](), "run `make docs`"


def test_every_generated_page_is_checked(generate):
    assert list(generate.PAGES) == PAGES


def test_a_changed_package_docstring_makes_the_readme_stale(generate, monkeypatch):
    monkeypatch.setattr(generate, "summary", lambda package: "Something else.")
    assert generate.readme() != (generate.ROOT / "README.md").read_text(encoding="utf-8")


def test_reliability_names_existing_tests(root):
    """Every promise names files under tests/, and the tests in them exist."""
    page = (root / "docs" / "reliability.md").read_text(encoding="utf-8")
    files = set(re.findall(r"`([a-z_]+/(?:test_[a-z_]+\.py)?)`", page))
    assert len(files) > 12
    assert [name for name in files if not (root / "tests" / name).exists()] == []
    names = set(re.findall(r"`(test_[a-z_]+)(?:\[[a-z]+\])?`", page))
    sources = "".join((root / "tests" / name).read_text(encoding="utf-8") for name in files if name.endswith(".py"))
    assert [name for name in names if f"def {name}(" not in sources] == []


def test_links_lead_to_existing_files(root):
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    assert len(pages) > 5
    broken = [
        f"{page.relative_to(root)}: {target}"
        for page in pages
        for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))
        if not re.match(r"[a-z]+:|#", target) and not (page.parent / target.partition("#")[0]).exists()
    ]
    assert not broken


def test_contributing_names_existing_files(root):
    """Every folder of CONTRIBUTING's table exists, and so does every example file."""
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert text.startswith("# Where do I add X?\n")
    rows = [line.split("|")[2:4] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 10
    for targets, examples in rows:
        folders = [root / name for name in re.findall(r"`([^`]+)`", targets)]
        assert not [folder for folder in folders if not folder.exists()]
        parents = [folder if folder.is_dir() else folder.parent for folder in folders] + [root / "src/peasy"]
        files = re.findall(r"`([\w/.-]+\.(?:py|toml))`", examples)
        assert not [name for name in files if not any((parent / name).exists() for parent in parents)]
