"""STS files and correlation with human scores."""

from peasy.evaluation.embedding import find_sts_file


def test_sts_files_are_distinguished_from_pairs(tmp_path):
    for name, text, scored in [
        ("a.tsv", "one\ttwo\t3.5\n", True),
        ("b.tsv", "one\ttwo\n", False),
        ("c.jsonl", '{"source": "a", "target": "b", "score": 1}\n', True),
        ("d.jsonl", '{"source": "a", "target": "b"}\n', False),
        ("e.txt", "one\ttwo\t3.5\n", False),
    ]:
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert (find_sts_file(tmp_path / name) is not None) == scored, name
