"""Terminal output: nothing in a token, a name or an error can control the terminal; a pipe gets the bytes unchanged."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import unicodedata

import pytest

from peasy.cli import app
from peasy.cli.terminal_stream import TerminalStream, guard_streams, write_styled

HOSTILE = {
    "title": "\x1b]0;owned\x07", "colour": "\x1b[31m", "hidden": "\x1b[8m", "clear": "\x1b[2J\x1b[H",
    "link": "\x1b]8;;http://x\x1b\\", "answer": "\x1b[6n\x1b[c", "clipboard": "\x1b]52;c;aGk=\x07",
    "bell": "\x07", "delete": "\x08\x7f",
    "return": "good\rbad", "csi": "\x9b31m", "osc": "\x9d0;x\x9c", "device": "\x90q\x9c", "bidi": "\u202eevil\u2066x",
    "mark": "\u200e\u061c", "lines": "\u2028\u2029", "null": "\x00", "shift": "\x0e\x0f", "surrogate": "\ud800",
    "tags": "\U000e0065\U000e0076", "cut flag": "\U0001f3f4\U000e0067\U000e0062", "soft": "\u00ad\u200b\ufeff\x85",
}  # fmt: skip


def controls(text):
    """Return what controls a terminal, beyond line ends and tabs."""
    wanted = ("\n", "\t", "\u200c", "\u200d")
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") and char not in wanted]


class Terminal:
    """Stand-in for a terminal."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def isatty(self):
        return True


@pytest.mark.parametrize("name", HOSTILE)
def test_every_control_becomes_a_symbol(name):
    terminal = Terminal()
    stream = TerminalStream(terminal)
    print(f"a{HOSTILE[name]}b\tc", file=stream)
    for char in f"a{HOSTILE[name]}b":  # a sequence that arrives in pieces, as tokens do
        stream.write(char)
    assert controls(terminal.text) == []
    assert terminal.text.startswith("a")
    assert "b\tc\n" in terminal.text


def test_own_colours_and_progress_keep_their_effect():
    terminal = Terminal()
    write_styled("\x1b[1;31mred\x1b[0m\r\x1b[2K50 %\x1b]0;x\x07", TerminalStream(terminal))
    assert terminal.text == "\x1b[1;31mred\x1b[0m\r\x1b[2K50 %␛]0;x␇"


def test_guard_is_only_before_terminals(monkeypatch, capsys):
    with guard_streams():
        sys.stdout.write("\x1b[31m\n")
    assert capsys.readouterr().out == "\x1b[31m\n"
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with guard_streams(raw=True):
        sys.stdout.write("\x1b[31m\n")
    with guard_streams():
        sys.stdout.write("\x1b[31m\n")
    assert terminal.text == "\x1b[31m\n␛[31m\n"
    assert sys.stdout is terminal


def run_in_terminal(*words, cwd, **environment):
    """Run `peasy` with a terminal for stdin, stdout and stderr; return what it writes there."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "peasy", *words], stdin=child, stdout=child, stderr=child, cwd=cwd, close_fds=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "PEASY_HOME": str(cwd / "home")} | environment,
    )  # fmt: skip
    os.close(child)
    received = b""
    while select.select([parent], [], [], 120)[0]:
        try:
            data = os.read(parent, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        received += data
    process.wait()
    os.close(parent)
    return received.decode("utf-8", "replace").replace("\r\n", "\n")


@pytest.fixture
def hostile_file(tmp_path):
    """A file whose name and contents hold escape sequences."""
    path = tmp_path / f"notes{HOSTILE['title']}{HOSTILE['csi']}{HOSTILE['bidi']}.toml"
    path.write_text(f'"{HOSTILE["bidi"]}" = [', encoding="utf-8")
    return path


@pytest.mark.parametrize("words", [("check",), ("explain",)], ids=str)
def test_errors_that_quote_a_name_control_nothing(hostile_file, tmp_path, words):
    shown = run_in_terminal(*words, hostile_file.name, cwd=tmp_path, NO_COLOR="1")
    assert "✗" in shown
    assert controls(shown) == []
    coloured = run_in_terminal(*words, hostile_file.name, "--debug", cwd=tmp_path)
    assert controls(re.sub(r"\x1b\[[0-9;]*m|\r?\x1b\[2K", "", coloured)) == []


def test_tokens_control_nothing(tmp_path):
    """A model whose only tokens are escape sequences."""
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.tokenization import train_tokenizer

    tokenizer = train_tokenizer([HOSTILE["title"] + HOSTILE["clear"] + HOSTILE["csi"] + HOSTILE["bidi"]], "characters")
    model = build(preset("gpt-tiny", vocab_size=len(tokenizer), d_model=8, stack={"feedforward": {"d_ff": 16}}))
    save_model(tmp_path / "hostile", model, tokenizer)
    words = ("generate", "./hostile", HOSTILE["title"], "--max-tokens", "30", "--temperature", "2", "--seed", "1")
    shown = run_in_terminal(*words, cwd=tmp_path, NO_COLOR="1")
    assert controls(shown) == []
    assert "␛" in shown
    lines = run_in_terminal(*words, "--json", cwd=tmp_path)
    assert controls(lines) == []
    records = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    assert any(
        controls(json.dumps(record, ensure_ascii=False)) or "\\u001b" in json.dumps(record) for record in records
    )
    piped = subprocess.run([sys.executable, "-m", "peasy", *words], cwd=tmp_path, capture_output=True, check=True)
    assert "\x9b".encode() in piped.stdout


def test_without_the_guard_they_would(hostile_file, tmp_path, monkeypatch):
    """The inverse, in this process."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(app, "guard_streams", lambda raw: guard_streams(raw=True))
    app.run(["check", str(hostile_file)])
    assert controls(terminal.text)
