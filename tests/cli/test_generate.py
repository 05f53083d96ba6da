"""`peasy generate`: streaming, batches, JSON lines, interruption."""

import json

import pytest

OPTIONS = ("--max-tokens", "4", "--weights", "float32")


def test_stdout_has_only_the_generated_text(peasy, model_folder):
    ran = peasy("generate", model_folder, "I love", *OPTIONS)
    assert ran.code == 0
    result = peasy("generate", model_folder, "I love", *OPTIONS, "--json")
    *events, last = map(json.loads, result.out.splitlines())
    assert ran.out == last["result"]["texts"][0]["text"] + "\n"
    assert "4 tokens" in ran.err
    assert [event["event"] for event in events] == ["token"] * 4 + ["finished"]
    assert "".join(event["text"] for event in events).strip() == ran.out.strip()


def test_sampling_prints_its_seed_and_is_reproducible(peasy, model_folder):
    command = ("generate", model_folder, "I love", "--temperature", "2", *OPTIONS)
    assert "seed 7" in peasy(*command, "--seed", "7").err
    assert peasy(*command, "--seed", "7").out == peasy(*command, "--seed", "7").out
    assert "seed " in peasy(*command).err


def test_several_prompts_keep_their_order(peasy, model_folder, tmp_path):
    (tmp_path / "prompts.txt").write_text("I love AI\nI\nlove pizza\n", encoding="utf-8")
    by_file = peasy("generate", model_folder, "@prompts.txt", *OPTIONS, "--json").out.splitlines()[-1]
    by_pipe = peasy("generate", model_folder, "-", "--lines", *OPTIONS, "--json", stdin="I love AI\nI\nlove pizza\n")
    texts = json.loads(by_file)["result"]["texts"]
    assert [text["prompt"] for text in texts] == ["I love AI", "I", "love pizza"]
    assert json.loads(by_pipe.out.splitlines()[-1])["result"]["texts"] == texts
    assert peasy("generate", model_folder, "-", *OPTIONS, stdin="I love\n").code == 0


def test_probabilities_and_cache(peasy, model_folder):
    shown = peasy("generate", model_folder, "I love", "--show-probabilities", "--show-cache", *OPTIONS)
    assert "candidates" in shown.out
    assert "multiplications" in shown.out
    assert "Next:" not in shown.err


def test_saved_to_a_file(peasy, model_folder, tmp_path):
    ran = peasy("generate", model_folder, "I love", *OPTIONS, "--out", "text.md")
    assert (ran.code, ran.out) == (0, "")
    assert "I love" in (tmp_path / "text.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["I love", "--top-p", "3"], 2, "--top-p is 3"),
        (["I love", "--tempersture", "1"], 2, "--temperature"),
        (["I love", "-n", "0"], 2, "-n is 0"),
        (["", "--max-tokens", "2"], 4, "prompt is empty"),
        (["I love " * 20], 4, "reads at most 16"),
        (["I love", "--speculative", "--no-cache"], 4, "cache"),
        (["I love", "--stop", ""], 4, "stop string is empty"),
    ],
)
def test_errors(peasy, model_folder, words, code, message):
    ran = peasy("generate", model_folder, *words)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_long_prompts_are_refused_cut_or_extend_the_context(peasy, model_folder):
    words = ("generate", model_folder, "I love " * 20, *OPTIONS)
    refused = peasy(*words)
    assert refused.code == 4
    assert "long=cut" in refused.err
    cut = peasy(*words, "--long", "cut")
    assert cut.code == 0
    assert "The prompt was cut to its last" in cut.err


def test_interruption_keeps_the_generated_text(peasy, model_folder, monkeypatch):
    from peasy.commands.generate import GenerationJob
    from peasy.generation.request import Token

    events = GenerationJob.events

    def interrupted(self):
        for event in events(self):
            yield event
            if isinstance(event, Token) and event.index == 1:
                raise KeyboardInterrupt

    whole = peasy("generate", model_folder, "I love", *OPTIONS).out
    monkeypatch.setattr(GenerationJob, "events", interrupted)
    ran = peasy("generate", model_folder, "I love", *OPTIONS)
    assert ran.code == 130
    assert ran.out.strip()
    assert whole.startswith(ran.out.rstrip())
    last = json.loads(peasy("generate", model_folder, "I love", *OPTIONS, "--json").out.splitlines()[-1])
    assert last["result"]["texts"][0]["finish_reason"] == "cancelled"


def test_a_text_that_names_a_file_is_text(peasy, model_folder, tmp_path):
    """Only @ reads a file; the same word without it is a prompt, in every command that takes a text."""
    (tmp_path / "love").write_text("I love AI\nI\n", encoding="utf-8")

    def prompts(text):
        lines = peasy("generate", model_folder, text, *OPTIONS, "--json").out.splitlines()
        return [text["prompt"] for text in json.loads(lines[-1])["result"]["texts"]]

    assert prompts("love") == ["love"]
    assert prompts("@love") == ["I love AI", "I"]
    assert prompts("@AI I love") == ["@AI I love"]
    assert peasy("tokenize", model_folder, "love", "--json").json["result"]["text"] == "love"
    assert peasy("tokenize", model_folder, "@love", "--json").json["result"]["text"] == "I love AI\nI"
    missing = peasy("generate", model_folder, "@lost.txt", *OPTIONS)
    assert missing.code == 3
    assert "There is no file lost.txt" in missing.err


@pytest.mark.parametrize("prompt", ["I love AI " * 30, "我爱" * 60, "@" + "love " * 200, "I love/" * 400])
def test_a_prompt_may_be_longer_than_a_file_name(peasy, model_folder, prompt):
    """It is looked up as the name of a file, too; 255 bytes are the most for one."""
    ran = peasy("generate", model_folder, prompt, "--long", "cut", *OPTIONS)
    assert ran.code == 0, ran.err
