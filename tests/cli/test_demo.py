"""`peasy demo`."""


def test_numbers_of_the_example(peasy):
    ran = peasy("demo")
    assert ran.code == 0
    for number in ("0.1978", "0.4011", "0.5760", "0.7160", "2.2920"):
        assert number in ran.out


def test_suggested_commands(peasy):
    assert "peasy explain" in peasy("demo").err
