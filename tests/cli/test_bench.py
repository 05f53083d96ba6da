"""`peasy bench`."""


def test_a_table_of_speeds(peasy):
    ran = peasy("bench", "stories", "--prompt", "4", "--tokens", "2", "--batch", "1", "--rounds", "1")
    assert ran.code == 0
    assert "tokens/s" in ran.out
    assert "int8" in ran.out


def test_a_translator_is_refused(peasy):
    ran = peasy("bench", "locales-fr")
    assert ran.code == 4
    assert "write on" in ran.err
