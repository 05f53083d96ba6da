"""`peasy look`."""

from itertools import combinations

import pytest

from peasy.cli.look import ATTENTION, EFFECT, OPTIONS_OF_VIEWS

TEXT = "I love pizza"

VIEWS = {
    "lens": ("--lens",),
    "rollout": ("--rollout",),
    "rank": ("--rank", "entropy"),
    "attribution": ("--attribution",),
    "align": ("--align",),
    "step_by_step": ("--step-by-step", "--layer", 1, "--head", 0),
    "generate": ("--generate", 2),
    "history": ("--history",),
    "overview": ("--overview", "mean"),
    "save_weights": ("--save-weights", "saved"),
}
OPTIONS = {
    "layer": ("--layer", 1),
    "head": ("--head", 0),
    "query": ("--query", "pizza"),
    "target": ("--target", "AI"),
    "top": ("--top", 2),
    "subwords": ("--subwords",),
    "add_special_tokens": ("--no-special-tokens",),
    "measure": ("--measure", "norm"),
    "token": ("--token", "AI"),
    "against": ("--against", "love"),
    "gold": ("--gold", "0-0"),
    "num_beams": ("--num-beams", 2),
    "tile_size": ("--tile-size", 2),
    "max_memory": ("--max-memory", "1MB"),
    "ablate": ("--ablate", "1.0"),
    "mean": ("--ablate", "1.0", "--mean", "stories"),
    "uniform": ("--uniform", "1.0"),
    "cut": ("--cut", "pizza:love"),
    "patch": ("--patch", "I love AI", "--layer", 1),
}
TRACKING = {"track": ("--track", "AI"), "data": ("--data", "few.txt")}


def test_every_view_and_option_is_listed():
    from dataclasses import fields
    from inspect import signature

    from peasy.cli.look import InterventionFlags, ViewFlags, ViewOptions, look

    assert {field.name for field in fields(ViewFlags)} == set(VIEWS)
    assert set(VIEWS) | {ATTENTION, EFFECT} == set(OPTIONS_OF_VIEWS)
    groups = {"view", "options", "interventions", "flags"}
    names = {field.name for flags in (ViewOptions, InterventionFlags) for field in fields(flags)}
    names |= signature(look).parameters.keys() - {"model", "text", *groups}
    assert names == set(OPTIONS) | set(TRACKING)


@pytest.mark.parametrize(("first", "second"), list(combinations(VIEWS, 2)))
def test_two_views_are_a_usage_error_that_names_both(peasy, first, second):
    ran = peasy("look", "stories", TEXT, *VIEWS[first], *VIEWS[second])
    assert (ran.code, ran.out) == (2, "")
    assert f"{VIEWS[first][0]} and {VIEWS[second][0]} are different views." in ran.err


PAIRS = [(view, option) for view in VIEWS for option in OPTIONS]
NEEDS_TRANSLATOR = "encoder-decoder model"


@pytest.mark.parametrize(("view", "option"), [pair for pair in PAIRS if pair[1] not in OPTIONS_OF_VIEWS[pair[0]]])
def test_option_of_another_view_is_refused(peasy, view, option):
    """Refused before the model is loaded, never ignored."""
    text = () if view == "history" else (TEXT,)
    ran = peasy("look", "no-such-model", *text, *VIEWS[view], *OPTIONS[option])
    assert (ran.code, ran.out) == (2, "")
    assert f"{OPTIONS[option][0]} has no effect with {VIEWS[view][0]}." in ran.err


@pytest.mark.parametrize(("view", "option"), [pair for pair in PAIRS if pair[1] in OPTIONS_OF_VIEWS[pair[0]]])
def test_option_of_the_view_is_accepted(peasy, model_folder, view, option):
    more = OPTIONS[option][:2] if view == "step_by_step" else OPTIONS[option]  # it has its one --layer and --head
    words = VIEWS[view] if option in ("layer", "head") and view == "step_by_step" else (*VIEWS[view], *more)
    ran = peasy("look", model_folder, TEXT, *words)
    if view == "align" or option == "target":
        assert ran.code == 4
        assert NEEDS_TRANSLATOR in ran.err
    else:
        assert ran.code == 0, ran.err


@pytest.mark.parametrize("option", ["query", "top", "subwords", "measure", "layer", "head", "gold", "num_beams"])
def test_option_without_effect_on_an_intervention_is_refused(peasy, option):
    ran = peasy("look", "no-such-model", TEXT, "--ablate", "1.0", *OPTIONS[option])
    assert ran.code == 2
    assert f"{OPTIONS[option][0]} has no effect with an intervention." in ran.err


@pytest.mark.parametrize("option", TRACKING)
@pytest.mark.parametrize("view", ["lens", "rollout", "overview", "generate"])
def test_tracking_belongs_to_the_effect_of_an_intervention(peasy, view, option):
    ran = peasy("look", "no-such-model", TEXT, *VIEWS[view], "--ablate", "1.0", *TRACKING[option])
    assert ran.code == 2
    assert f"{TRACKING[option][0]} has no effect with {VIEWS[view][0]}." in ran.err


@pytest.mark.parametrize("view", ["lens", "rollout", "step_by_step"])
def test_view_under_an_intervention_shows_other_numbers(peasy, model_folder, view):
    words = ("look", model_folder, TEXT, *VIEWS[view], "--json")
    plain, ablated = peasy(*words), peasy(*words, "--ablate", "0")
    assert (plain.code, ablated.code) == (0, 0)
    assert plain.json["result"] != ablated.json["result"]


def test_cut_applies_to_every_layer_and_head_given(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT, "--cut", "pizza:love", "--layer", 0, "--layer", 1, "--head", 1)
    out = " ".join(ran.out.split())
    assert all(f'"pizza" cannot attend to "love" in layer {layer}, head 1' in out for layer in (0, 1))


def test_top_and_subwords_choose_what_is_shown(peasy, model_folder):
    one = ("look", model_folder, TEXT, "--layer", 1, "--head", 0)
    assert peasy(*one).out != peasy(*one, "--top", 1).out
    assert "strongest links" in peasy(*one, "--top", 1).out
    assert "strongest links" not in peasy("look", model_folder, TEXT, "--subwords").out


def test_one_line_per_head(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT)
    assert ran.code == 0
    assert "strongest links" in ran.out
    assert "Next token" in ran.out
    assert "switch it off to" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_attention_of_a_query_word(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT, "--query", "pizza", "--top", 2)
    assert '"pizza" attends to' in ran.out
    lines = [line for line in ran.out.splitlines() if line[:4].strip() in ("0.0", "0.1", "1.0", "1.1")]
    assert len(lines) == 4


def test_head_lens_steps_ranking_and_tiles(peasy, model_folder):
    one = ("--layer", 1, "--head", 0)
    assert "layer 1, head 0" in peasy("look", model_folder, TEXT, *one).out.lower()
    assert "top prediction" in peasy("look", model_folder, TEXT, "--lens").out
    assert "Softmax" in peasy("look", model_folder, TEXT, *one, "--step-by-step").out
    assert "Attention heads of" in peasy("look", model_folder, f"{TEXT}. I love AI.", "--rank", "induction").out
    assert "3 tokens" in peasy("look", model_folder, "-", "--overview", "max", "--tile-size", 2, stdin=f"{TEXT}\n").out


def test_ablation(peasy, model_folder):
    ran = peasy("look", model_folder, TEXT, "--ablate", "1.0", "--ablate", "0")
    assert ran.code == 0
    assert "layer 1, head 0 set to zero" in ran.out
    assert "before" in ran.out


def test_every_intervention(peasy, model_folder):
    ran = peasy(
        "look", model_folder, TEXT, "--uniform", "1.0", "--cut", "pizza:love", "--layer", 0, "--patch", "I love AI",
        "--track", "pizza",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    out = " ".join(ran.out.split())
    assert "layer 1, head 0 attends uniformly" in out
    assert '"pizza" cannot attend to "love" in layer 0' in out
    assert 'layer 0 from "I love AI"' in out


def test_rollout_and_generation_trace(peasy, model_folder):
    assert "Rollout multiplies" in " ".join(peasy("look", model_folder, TEXT, "--rollout").out.split())
    ran = peasy("look", model_folder, TEXT, "--generate", 2, "--json")
    assert len(ran.json["result"]["steps"]) == 2
    assert (
        len(peasy("look", model_folder, TEXT, "--generate", 2, "--num-beams", 2, "--json").json["result"]["beams"]) == 2
    )


def test_attention_of_a_dataset_is_saved(peasy, model_folder, tmp_path):
    ran = peasy(
        "look", model_folder, "-", "--save-weights", "looks", "--max-memory", "1KB", stdin="I love pizza\nI love AI\n"
    )
    assert ran.code == 0, ran.err
    assert "2 texts" in ran.out
    assert sorted(file.name for file in (tmp_path / "looks").iterdir())[-1] == "index.json"


def test_json_and_files(peasy, model_folder, tmp_path):
    result = peasy("look", model_folder, TEXT, "--json").json["result"]
    assert {capture["caption"] for capture in result["captures"]} == {"weights"}
    assert result["tokens"]["pieces"] == ["I", "love", "pizza"]
    assert len(result["captures"]) == 2
    assert peasy("look", model_folder, TEXT, "--out", "look.html").code == 0
    assert "pizza" in (tmp_path / "look.html").read_text()


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (("--layer", 9), 4, "no layer 9"),
        (("--query", "oven"), 4, "not in the text"),
        (("--rank", "size"), 4, "cannot be ranked"),
        (("--ablate", "x"), 4, "is not a head"),
        (("--cut", "pizza"), 4, "is not a pair query:key"),
        (("--patch", "I love AI"), 2, "needs one --layer"),
        (("--track", "AI"), 2, "--track needs an intervention"),
        (("--mean", "stories"), 2, "--mean needs --ablate"),
        (("--step-by-step",), 2, "needs one --layer"),
        (("--max-memory", 10), 6, "the budget is 10 bytes"),
        (("--align",), 4, "no cross-attention"),
        (("--step-by-step", "--layer", 0, "--layer", 1, "--head", 0), 2, "needs one --layer and one --head"),
        (("--patch", "I love AI", "--layer", 0, "--layer", 1), 2, "needs one --layer"),
        (("--track", "AI", "--data", "x.txt"), 2, "--track and --data need an intervention"),
        (("--query", "pizza", "--subwords"), 2, "--query and --subwords cannot be combined"),
        (("--top", 2, "--subwords"), 2, "--top and --subwords cannot be combined"),
        (("--top", 0), 2, "1 or more"),
        (("--lens", "--align", "--rank", "entropy"), 2, "--lens, --rank and --align are different views"),
        (("--gold", "0-0"), 2, "--gold needs --align."),
        (("--num-beams", 2), 2, "--num-beams needs --generate."),
        (("--tile-size", 2), 2, "--tile-size needs --overview."),
        (("--history",), 2, "--history takes no TEXT"),
    ],
)
def test_errors(peasy, model_folder, more, code, message):
    ran = peasy("look", model_folder, TEXT, *more)
    assert ran.code == code
    assert message in " ".join(ran.err.split())


def test_unknown_model_and_empty_text(peasy, model_folder):
    assert peasy("look", "no-such", TEXT).code == 3
    assert "look needs TEXT" in peasy("look", model_folder).err
    assert peasy("look", model_folder, "").code == 4


def test_effect_on_a_dataset(peasy, tmp_path):
    """The loss is reported with and without the intervention, and differs."""
    (tmp_path / "few.txt").write_text("The pizza came out of the oven and it tasted good.\n" * 6, encoding="utf-8")
    ran = peasy("look", "stories", "The pizza", "--ablate", "1", "--data", tmp_path / "few.txt", "--json")
    assert ran.code == 0, ran.err
    name, before, after = ran.json["result"]["metrics"][0]
    measures = peasy("evaluate", "stories", tmp_path / "few.txt", "--json").json["result"]["measures"]
    assert before == pytest.approx(measures[name], abs=1e-5)
    assert before != after


def test_attention_over_training(peasy, tmp_path, monkeypatch):
    monkeypatch.setenv("PEASY_HOME", str(tmp_path / "home"))
    (tmp_path / "few.txt").write_text("the cat sat on the mat\n" * 40, encoding="utf-8")
    shape = (
        "--set",
        "seq_len=8",
        "--set",
        "seq_len_warmup=null",
        "--set",
        "tokenizer.algorithm=characters",
        "--set",
        "num_saves=2",
    )
    trained = peasy(
        "train", "gpt", "--preset", "tiny", "--steps", 4, "--data", tmp_path / "few.txt", "--run", "r", *shape
    )
    assert trained.code == 0, trained.err
    ran = peasy("look", "r", "--history")
    assert ran.code == 0, ran.err
    assert "Attention over training" in ran.out
    assert "after step 4" in ran.out
    path = tmp_path / "history.html"
    assert peasy("look", "r", "--history", "--out", path).code == 0
    assert all(f"after step {step}" in path.read_text(encoding="utf-8") for step in (2, 4))
