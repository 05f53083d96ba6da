"""`stdlib`: docstrings, topics and source of Python, split by file."""

import json
import pydoc_data.topics
from inspect import cleandoc

import pytest

from peasy.datasets import open_corpus
from peasy.datasets import stdlib as module


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Small fake library, so that reading it takes no time."""
    for number in range(30):
        module_text = f'"""Module number {number} says what it does."""\n\n\n'
        function_text = f'def f():\n    """Function {number} has a docstring."""\n'
        (tmp_path / f"m{number:02}.py").write_text(module_text + function_text)
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "t.py").write_text('"""A test is not part of the library, is it?"""')
    monkeypatch.setattr(module, "_LIBRARY", tmp_path)
    return tmp_path


def test_docstrings_are_split_by_file(library):
    corpus = open_corpus("stdlib")
    train, valid = list(corpus.documents("train")), list(corpus.documents("valid"))
    assert len(train) + len(valid) == 60
    assert "Function 3 has a docstring." in train + valid
    assert len(valid) % 2 == 0  # a file is in one split only
    assert not set(train) & set(valid)


def test_source_skips_undecodable_files(library):
    texts = [text for split in ("train", "valid") for text in open_corpus("stdlib:source").documents(split)]
    assert len(texts) == 30
    assert all(text.startswith('"""Module') for text in texts)


def test_nested_docstrings_are_found(library):
    (library / "deep.py").write_text(
        "try:\n  class A:\n    def f(self):\n      '''Deep down there is a docstring.'''\nexcept E:\n  def g():\n"
        "    '''And here is another one, too.'''\n"
    )
    texts = [text for split in ("train", "valid") for text in open_corpus("stdlib").documents(split)]
    assert "Deep down there is a docstring." in texts
    assert "And here is another one, too." in texts


def test_topics_equal_pydoc_topics():
    corpus = open_corpus("stdlib:topics")
    texts = sorted(text for split in corpus.splits for text in corpus.documents(split))
    assert texts == sorted(pydoc_data.topics.topics.values())
    assert corpus.card.licence == "PSF-2.0"


def test_real_library_includes_json():
    corpus = open_corpus("stdlib")
    assert len(corpus._files) > 300
    corpus._files = [path for path in corpus._files if path.parent.name == "json"]
    texts = [text for split in corpus.splits for text in corpus.documents(split)]
    assert cleandoc(json.loads.__doc__).strip() in texts
