"""`peasy bench`."""


def test_speed_table(peasy):
    ran = peasy("bench", "stories", "--prompt-tokens", "4", "--max-tokens", "2", "--batch-size", "1", "--repeats", "1")
    assert ran.code == 0
    assert "tokens/s" in ran.out
    assert "int8" in ran.out


def test_translator_is_rejected(peasy):
    ran = peasy("bench", "locales-fr")
    assert ran.code == 4
    assert "continue a text" in ran.err
