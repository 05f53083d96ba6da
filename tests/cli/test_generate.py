"""`peasy generate` from argv: streamed, in batches, as lines of JSON, stopped half-way."""

import json

import pytest

HOW = ("--max-tokens", "4", "--weights", "float32")


def test_only_what_was_written_is_on_stdout(peasy, model_folder):
    ran = peasy("generate", model_folder, "I love", *HOW)
    assert ran.code == 0
    result = peasy("generate", model_folder, "I love", *HOW, "--json")
    *events, last = map(json.loads, result.out.splitlines())
    assert ran.out == last["result"]["texts"][0]["text"] + "\n"
    assert "4 tokens" in ran.err
    assert [event["event"] for event in events] == ["token"] * 4 + ["ended"]
    assert "".join(event["text"] for event in events).strip() == ran.out.strip()


def test_draws_say_their_seed_and_repeat(peasy, model_folder):
    draws = ("generate", model_folder, "I love", "--temperature", "2", *HOW)
    assert "seed 7" in peasy(*draws, "--seed", "7").err
    assert peasy(*draws, "--seed", "7").out == peasy(*draws, "--seed", "7").out
    said = peasy(*draws).err
    assert "seed " in said


def test_several_texts_come_in_their_order(peasy, model_folder, tmp_path):
    (tmp_path / "prompts.txt").write_text("I love AI\nI\nlove pizza\n", encoding="utf-8")
    by_file = peasy("generate", model_folder, "prompts.txt", *HOW, "--json").out.splitlines()[-1]
    by_pipe = peasy("generate", model_folder, "-", "--lines", *HOW, "--json", stdin="I love AI\nI\nlove pizza\n")
    texts = json.loads(by_file)["result"]["texts"]
    assert [text["prompt"] for text in texts] == ["I love AI", "I", "love pizza"]
    assert json.loads(by_pipe.out.splitlines()[-1])["result"]["texts"] == texts
    assert peasy("generate", model_folder, "-", *HOW, stdin="I love\n").code == 0


def test_chances_and_cache_are_shown(peasy, model_folder):
    shown = peasy("generate", model_folder, "I love", "--show-probabilities", "--show-cache", *HOW)
    assert "likeliest" in shown.out
    assert "multiplications" in shown.out
    assert "Next:" not in shown.err


def test_saved_to_a_file(peasy, model_folder, tmp_path):
    ran = peasy("generate", model_folder, "I love", *HOW, "--out", "text.md")
    assert (ran.code, ran.out) == (0, "")
    assert "I love" in (tmp_path / "text.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["I love", "--top-p", "3"], 4, "top_p is 3"),
        (["I love", "--tempersture", "1"], 2, "--temperature"),
        (["I love", "--n", "0"], 4, "n is 0"),
        (["", "--max-tokens", "2"], 4, "nothing to write on"),
        (["I love " * 20], 4, "reads at most 16"),
        (["I love", "--lookup", "--no-cache"], 4, "cache"),
        (["I love", "--stop", ""], 4, "stop text is empty"),
    ],
)
def test_mistakes_are_said_in_words(peasy, model_folder, words, code, said):
    ran = peasy("generate", model_folder, *words)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_a_long_prompt_can_keep_its_end(peasy, model_folder):
    assert peasy("generate", model_folder, "I love " * 20, "--long", "last", *HOW).code == 0


def test_stopping_keeps_what_was_written(peasy, model_folder, monkeypatch):
    from peasy.generation.request import Token
    from peasy.workbench.generate import Writer

    plain = Writer.events

    def interrupted(self):
        for event in plain(self):
            yield event
            if isinstance(event, Token) and event.place == 1:
                raise KeyboardInterrupt

    whole = peasy("generate", model_folder, "I love", *HOW).out
    monkeypatch.setattr(Writer, "events", interrupted)
    ran = peasy("generate", model_folder, "I love", *HOW)
    assert ran.code == 130
    assert ran.out.strip()
    assert whole.startswith(ran.out.strip())
    last = json.loads(peasy("generate", model_folder, "I love", *HOW, "--json").out.splitlines()[-1])
    assert last["result"]["texts"][0]["reason"] == "interrupted"
