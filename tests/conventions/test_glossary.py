"""The glossary is correct: each term is found in the file that the glossary names."""

import re
import tomllib

import pytest

SEARCHED_TERMS = (
    "KV cache", "attention mask", "prefill", "scheduler", "detokenizer", "data loader", "GQA", "speculative decoding",
    "ablation", "learning rate", "cross-attention", "layer norm", "positional encoding", "logits", "teacher forcing",
)  # fmt: skip


def spelled(term: str) -> re.Pattern[str]:
    """The term with a space, hyphen, underscore or nothing between its words, in any case: `kv_cache`, `KVCache`."""
    return re.compile(r"[\s_-]*".join(map(re.escape, re.split(r"[\s-]+", term))), re.IGNORECASE)


@pytest.fixture(scope="module")
def terms(root):
    groups = tomllib.loads((root / "src" / "peasy" / "server" / "glossary.toml").read_text(encoding="utf-8"))["group"]
    return [term for group in groups for term in group["terms"]]


def test_each_term_is_found_where_the_glossary_says(terms, root):
    def found(term):
        path = root / "src" / "peasy" / term["where"]
        return path.exists() and spelled(term.get("find", term["term"])).search(path.read_text(encoding="utf-8"))

    assert not [f"{term['term']}: {term['where']}" for term in terms if not found(term)]


def test_each_term_is_found_in_the_source(terms, sources):
    text = "\n".join(source.text for source in sources)
    assert not [term["term"] for term in terms if not spelled(term.get("find", term["term"])).search(text)]


def test_what_a_student_searches_for_is_explained(terms, root):
    """Terms a student searches for are in the glossary and on a tour page."""
    tour = "\n".join(page.read_text(encoding="utf-8") for page in (root / "docs" / "tour").rglob("*.md"))
    named = {term["term"].lower() for term in terms}
    assert not [term for term in SEARCHED_TERMS if term.lower() not in named or not spelled(term).search(tour)]


def test_terms_are_unique_and_short(terms):
    names = [term["term"].lower() for term in terms]
    assert len(names) == len(set(names))
    assert not [term["term"] for term in terms if len(term["means"]) > 220]


def test_a_missing_term_is_noticed():
    assert not spelled("KV cache").search("the memory of what was read")
    assert spelled("KV cache").search("class KVCache:")
