"""JavaScript in a saved page: modules that are joined into one script share no top-level name."""

import re
from collections import Counter
from importlib.resources import files

import pytest

from peasy.render import html

BUNDLES = {
    name: value
    for name, value in vars(html).items()
    if isinstance(value, tuple) and value and all(str(file).endswith(".js") for file in value)
}
TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function\*?|class|const|let|var) +([\w$]+)", re.MULTILINE)


def top_level_names(source: str) -> list[str]:
    names = TOP_LEVEL.findall(source)
    for group in re.findall(r"^(?:export )?(?:const|let) [{\[]([^}\]]*)[}\]]", source, re.MULTILINE):
        names += re.findall(r"(?:\w+: *)?(\w+)", group)
    return names


def shared_names(sources: list[str]) -> list[str]:
    counts = Counter(name for source in sources for name in set(top_level_names(source)))
    return [name for name, count in counts.items() if count > 1]


def test_bundled_modules_share_no_top_level_name():
    assert BUNDLES
    modules = dict.fromkeys(file for bundle in BUNDLES.values() for file in bundle)
    sources = [(files("peasy.render") / "web" / file).read_text(encoding="utf-8") for file in modules]
    assert sum(map(len, map(top_level_names, sources))) > 50
    assert not shared_names(sources)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("const a = 1;", "function a() {}"),
        ("export const { a, b } = c;", "let b = 2;"),
        ("export async function a() {}", "class a {}"),
    ],
)
def test_a_shared_name_is_found(one, other):
    assert shared_names([one, other])


def test_names_inside_a_function_may_repeat():
    assert not shared_names(["function f() {\n\tconst a = 1;\n}", "function g() {\n\tconst a = 1;\n}"])
