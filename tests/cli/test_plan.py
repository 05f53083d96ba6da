"""`peasy plan`."""


def test_plan_for_other_hardware(peasy):
    ran = peasy("plan", "gpt2", "--accelerators", "8", "--flops", "312T", "--memory", "80GB", "--bandwidth", "300GB/s")
    assert ran.code == 0
    assert "124,439,808" in ran.out
    assert "36.0 MiB" in ran.out


def test_plan_for_this_machine(peasy):
    words = ("--steps", "5", "--set", "batch_size=2", "--set", "seq_len=16", "--set", "seq_len_warmup=null", "--json")
    ran = peasy("plan", "gpt", "--data", "copy:3", "--preset", "tiny", *words)
    assert ran.code == 0, ran.err
    assert ran.json["result"]["numbers"]["steps"] == 5
    assert ran.json["next"][0].startswith("peasy train gpt --data copy:3 --preset tiny --steps 5")


def test_settings_change_the_plan(peasy):
    hardware = ("--accelerators", "8", "--flops", "312T", "--memory", "80GB", "--bandwidth", "300GB/s", "--json")

    def numbers(*words):
        return peasy("plan", "gpt", *hardware, *words).json["result"]["numbers"]

    assert numbers("--batch-size", "64") == numbers("--set", "batch_size=64") != numbers("--batch-size", "32")
    assert numbers("--mfu", "0.2")["seconds_per_step_ddp"] >= numbers("--mfu", "0.4")["seconds_per_step_ddp"]


def test_incomplete_hardware(peasy):
    ran = peasy("plan", "gpt", "--accelerators", "2")
    assert ran.code == 2
    assert "--flops" in ran.err
