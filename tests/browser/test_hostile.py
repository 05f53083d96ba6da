"""Hostile strings as tokens in saved pages: no dialog, no request, no new element; with inverse tests."""

import numpy as np
import pytest
from tests.render.conftest import HOSTILE

from peasy import render
from peasy.render import html, sanitize
from peasy.views.document import CacheFigure, Document, Links, Maps, Plane

pytestmark = pytest.mark.browser

EVERYTHING = """(() => {
    const count = {};
    const walk = (root) => {
        for (const element of root.querySelectorAll("*")) {
            count[element.localName] = (count[element.localName] ?? 0) + 1;
            for (const { name } of element.attributes) if (name.startsWith("on")) count[name] = (count[name] ?? 0) + 1;
            if (element.shadowRoot) walk(element.shadowRoot);
        }
    };
    walk(document);
    return count;
})()"""


def document(words):
    """Return a document with each word as token, title, axis and sentence of all figures."""
    parts = []
    for start in range(0, len(words), 50):
        some = tuple(words[start : start + 50])
        size = len(some)
        weights = np.full((size, size), 1 / size)
        parts += [
            Maps(some[0], weights[None, None], some, some, (some[1],), (some[2],), *some[3:8]),
            Links(some[8], some, some, weights, some[9], some[10], some[11], min_weight=0.5),
            CacheFigure(some[12], some, ((0, 4), (4, 1)), some[13]),
            Plane(some[14], tuple((word, float(i), float(i % 7)) for i, word in enumerate(some)), some[15], some[16],
                  groups=some, neighbours=tuple(((i + 1) % size,) for i in range(size))),
        ]  # fmt: skip
    return Document(words[0], tuple(parts))


def used(recorded):
    """Use the page, then count its elements."""
    page = recorded.page
    # a function: an expression would be evaluated again at each poll, which the page's policy forbids
    figures = "document.querySelectorAll('peasy-maps, peasy-links, peasy-plane')"
    page.wait_for_function(f"() => [...{figures}].every((e) => 'ready' in e.dataset)")
    for row in range(3):
        page.evaluate(f"document.querySelectorAll('peasy-maps').forEach((e) => e.selectCell({row}, {row}))")
    for kind in ("peasy-maps", "peasy-links"):
        page.locator(f"{kind} svg text[data-side]").first.focus()
    page.locator("path.point").first.focus()
    page.evaluate("document.querySelectorAll('details').forEach((e) => (e.open = true))")
    return page.evaluate(EVERYTHING)


def test_hostile_tokens_are_inert(opened, tmp_path):
    hostile = opened(render.save(document(HOSTILE), tmp_path / "hostile.html"))
    same = tuple(f"w{HOSTILE.index(word)}" for word in HOSTILE)  # a word that comes twice is one kind of point
    tame = opened(render.save(document(same), tmp_path / "tame.html"))
    found, expected = used(hostile), used(tame)
    # The number of labels that fit depends on their width; all other counts must be equal.
    assert {k: v for k, v in found.items() if k != "text"} == {k: v for k, v in expected.items() if k != "text"}
    hostile.assert_quiet()
    tame.assert_quiet()


def test_tokens_are_shown_as_text(opened, tmp_path):
    page = opened(render.save(document(HOSTILE[:50]), tmp_path / "page.html"), "peasy-maps").page
    words = page.locator("peasy-maps svg text[data-side='0']").all_text_contents()
    assert words == [sanitize.token_label(word) for word in HOSTILE[:50]]


def test_without_escaping_the_page_would_break(opened, tmp_path, monkeypatch):
    """The inverse: without escaping of data and markup, the test above fails."""
    import json

    monkeypatch.setattr(html, "_safe_json", lambda data: json.dumps(data, ensure_ascii=False))
    monkeypatch.setattr(html, "escape", lambda text: text)
    words = tuple(word for word in HOSTILE if word.isprintable())[:150]
    hostile = opened(render.save(document(words), tmp_path / "hostile.html"))
    tame = opened(render.save(document(tuple(f"w{place}" for place in range(len(words)))), tmp_path / "tame.html"))
    assert hostile.page.locator("img").count() > tame.page.locator("img").count() == 0


def test_without_csp_an_injected_script_would_run(opened, tmp_path):
    """The inverse of the CSP: an injected script runs only without it."""
    whole = html.draw(document(HOSTILE[:50])).replace("<h1>", "<script>alert(1)</script><h1>", 1)
    (tmp_path / "with.html").write_text(whole)
    start, end = whole.index("<meta http-equiv"), whole.index('<meta name="viewport')
    (tmp_path / "without.html").write_text(whole[:start] + whole[end:])
    assert opened(tmp_path / "with.html").dialogs == []
    assert opened(tmp_path / "without.html").dialogs == ["1"]
