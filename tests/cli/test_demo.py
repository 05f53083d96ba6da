"""`peasy demo`."""


def test_it_shows_a_worked_result_with_the_right_numbers(peasy):
    ran = peasy("demo")
    assert ran.code == 0
    for number in ("0.1978", "0.4011", "0.5760", "0.7160", "2.2920"):
        assert number in ran.out


def test_it_says_what_to_do_next(peasy):
    assert "peasy explain" in peasy("demo").err
