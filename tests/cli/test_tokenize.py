"""`peasy tokenize` from the terminal."""


def test_pieces_and_ids(peasy, model_folder):
    shown = peasy("tokenize", model_folder, "I love pizza")
    assert shown.code == 0
    assert "pizza" in shown.out
    ran = peasy("tokenize", model_folder / "tokenizer.json", "-", "--json", stdin="I love pizza\n")
    assert ran.code == 0
    assert "[1, 2, 4]" in ran.out or '"id": 4' in ran.out


def test_nothing_of_that_name(peasy, model_folder):
    ran = peasy("tokenize", "tinny", "I love pizza", "--offline")
    assert ran.code == 3
    assert ran.err.startswith("✗ ")
