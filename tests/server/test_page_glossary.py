"""The studio's Glossary page in a real browser: every term of the glossary, and a filter."""

import pytest

pytestmark = pytest.mark.browser


def test_every_term_is_listed_and_the_filter_finds_one(open_window):
    window = open_window("/glossary")
    terms = window.page.locator("dt")
    assert terms.count() > 50
    assert "KV cache" in terms.all_inner_texts()
    window.page.get_by_label("filter").fill("grouped-query")
    assert terms.all_inner_texts() == ["GQA"]
    window.page.get_by_label("filter").fill("no such term")
    assert terms.count() == 0
