"""`peasy plan`."""


def test_plan_for_other_hardware(peasy):
    ran = peasy("plan", "gpt2", "--accelerators", "8", "--flops", "312T", "--memory", "80GB", "--bandwidth", "300GB/s")
    assert ran.code == 0
    assert "124,439,808" in ran.out
    assert "36.0 MiB" in ran.out


def test_plan_for_this_machine(peasy):
    words = ("--steps", "5", "--set", "batch=2", "--set", "context=16", "--set", "short=null", "--json")
    ran = peasy("plan", "gpt", "--data", "copy:3", "--preset", "tiny", *words)
    assert ran.code == 0, ran.err
    assert ran.json["result"]["numbers"]["steps"] == 5
    assert ran.json["next"][0].startswith("peasy train gpt --data copy:3")


def test_incomplete_hardware(peasy):
    ran = peasy("plan", "gpt", "--accelerators", "2")
    assert ran.code == 2
    assert "--flops" in ran.err
