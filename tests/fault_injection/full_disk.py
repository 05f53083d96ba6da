"""Fails every write of a piece of work, one after the other, in forks: ENOSPC (a full disk from there on) and EIO.

`LD_PRELOAD=failing_writes.so python full_disk.py FOLDER WORK COUNT` prints the trials and the failures, as JSON.
WORK: train, prepare, export, results, temporary or upload. Each trial fails another write (all of them if COUNT is 0).
The work must end with an error that names a path, and for a full disk the bytes needed and free; it must leave no file
half-written; and done again it must give what undisturbed work gives.
"""

import ctypes
import errno
import json
import os
import shutil
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import torch

from peasy.commands.train import train_events
from peasy.errors import PeasyError

sys.path.insert(0, str(Path(__file__).parent))
from harness import LINES, SETTINGS, STEPS, in_child, outcome

LIBRARY = ctypes.CDLL(None)


def train(folder: Path) -> None:
    """Train with attention records, samples, metrics and checkpoints."""
    for _ in train_events(
        "gpt", folder / "lines.txt", preset="tiny", steps=STEPS, seed=5, run=folder / "run",
        settings=SETTINGS | {"tracked_sentence": "the cat sat"},
        resume=True, device="cpu",
    ):  # fmt: skip
        pass


def export(folder: Path) -> None:
    """Save pages, arrays and models in every format."""
    import peasy
    from peasy.checkpoint.gguf import write_gguf
    from peasy.checkpoint.huggingface import write_folder
    from peasy.checkpoint.model import save_model
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.tokenization import train_tokenizer

    tokenizer = train_tokenizer(LINES, "bpe", 300)
    shape = {"num_layers": 1, "attention": {"num_heads": 2}, "feedforward": {"d_ff": 16}}
    config = preset("gpt2", vocab_size=300, d_model=8, max_seq_len=16, stack=shape)
    model = build(config, seed=1)
    for name, write in {
        "own": lambda path: save_model(path, model, tokenizer),
        "hf": lambda path: write_folder(path, config, model.state_dict(), tokenizer),
        "gguf": lambda path: write_gguf(path, config, model.state_dict(), tokenizer),
    }.items():
        if not (folder / name).exists():
            write(folder / name)
    result = peasy.explain("i-love-ai")
    for suffix in ("html", "svg", "md", "csv", "json", "tex", "png", "pdf", "xlsx"):
        result.save(folder / f"love.{suffix}")


def prepare(folder: Path) -> None:
    """Tokenize plain text, pairs, labelled texts and chats into shards."""
    from peasy.datasets import open_corpus
    from peasy.datasets.shards import prepare_shards
    from peasy.tokenization import train_tokenizer
    from peasy.tokenization.chat_template import DEFAULT_CHAT_TEMPLATE
    from peasy.tokenization.tokenizer import Tokenizer

    chat = [{"role": "user", "content": LINES[0]}, {"role": "assistant", "content": LINES[1]}]
    records = {
        "plain": {"text": LINES[0]}, "pairs": {"source": LINES[0], "target": LINES[1]},
        "labels": {"text": LINES[0], "label": "good"}, "chats": {"messages": chat},
    }  # fmt: skip
    tokenizer = train_tokenizer(LINES, "bpe", 300)
    tokenizer = Tokenizer(tokenizer._data, tokenizer.config | {"chat_template": DEFAULT_CHAT_TEMPLATE})
    for name, record in records.items():
        source = folder.parent / f"{name}.jsonl"  # outside: its writes do not fail
        lines = [json.dumps(record | {"number": number}) + "\n" for number in range(40)]
        source.write_text("".join(lines), encoding="utf-8")
        prepare_shards(open_corpus(str(source)), tokenizer, folder / "shards" / name)


def temporary(folder: Path) -> None:
    """Work that writes temporary files only: a model saved and read again, a dry run of training."""
    import peasy
    from peasy.verification.equality import _save_roundtrip

    tempfile.tempdir = str(folder / "temporary")
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    _save_roundtrip(peasy.load("repeats").model)
    peasy.plan("gpt", folder / "lines.txt", preset="tiny", settings=SETTINGS)


def results(folder: Path) -> None:
    """Save what commands make: worksheets, figures, arrays, vectors, experiments, imported models, activations."""
    import peasy
    from peasy.commands.look import save_activations

    os.environ["PEASY_HOME"] = str(folder / "data")
    model = peasy.load("repeats")
    sheet = peasy.exercise(seed=3)
    for suffix in ("md", "html", "csv"):
        sheet.save(folder / f"sheet.{suffix}")
    looked = peasy.look(model, [1, 2, 3, 1, 2])
    for suffix in ("npz", "json", "csv", "svg"):
        looked.save(folder / f"look.{suffix}")
    looked.plot(layer=0, head=0).save(folder / "figure.svg")
    peasy.embed("sentences", ["the pizza"]).save(folder / "vectors.npy")
    if not (folder / "activations").exists():
        save_activations(model, [[1, 2, 3]], folder / "activations")
    if not (folder / "data" / "runs" / "copy").exists():
        peasy.import_model(model.folder, name="copy")
    peasy.experiment("matrix-form", tokens=8, store=True)


def upload(folder: Path) -> None:
    """Append two chunks to an upload."""
    from peasy.server.upload import append_text, upload_path

    name = f"{'0' * 16}-text.txt"
    os.environ["PEASY_HOME"] = str(folder / "data")
    for chunk in ("the first chunk\n" * 51, "the second chunk\n" * 51):
        path = upload_path(name, must_exist=False)
        if not path.exists() or chunk not in path.read_text():
            append_text(name, chunk)


WORK = {
    "train": train, "prepare": prepare, "export": export, "results": results, "temporary": temporary, "upload": upload,
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files that do not depend on the time."""
    depend, places = (".lock", "about.json", "manifest.json"), {"home", "experiments"}
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in depend and not places & {*path.parts}
    }  # fmt: skip


def attempt(work, folder: Path, result: Path, at: int, number: int) -> None:
    """Do the work with its `at`-th write failing; write down how it ended, outside of the folder."""
    LIBRARY.fail_writes(str(folder).encode(), ctypes.c_long(at), number)
    try:
        work(folder)
        ended = {"error": None}
    except PeasyError as error:
        ended = {"error": error.message, "code": error.code}
    except BaseException as error:
        ended = {"error": repr(error), "code": "raw"}
    result.write_text(json.dumps(ended | {"writes": LIBRARY.writes_seen()}))


def problems(ended: dict, number: int, folder: Path, whole: dict[str, bytes]) -> list[str]:
    """Return what is wrong after a failed write."""
    message, found = ended["error"], []
    if message is not None and ended["code"] != "resource-unavailable":
        found.append(f"ended with {ended['code']}: {message}")
    if message is not None and str(folder) not in message:
        found.append(f"names no path: {message}")
    if message is not None and number == errno.ENOSPC and not ("needed" in message and "free" in message):
        found.append(f"names no bytes: {message}")
    left = [str(path) for path in folder.rglob("*.part*") if "home" not in path.parts]
    if left:
        found.append(f"left behind: {left}")
    for path in folder.rglob("experiments/*.json"):  # they hold times
        found += [] if path.read_bytes().endswith(b"}\n") else [f"{path} is not complete"]
    for name, data in contents(folder).items():
        if "checkpoints" not in name and name in whole and not whole[name].startswith(data) and data:
            found += [] if name.endswith(".jsonl") else [f"{name} differs"]
        if name.endswith((".jsonl", ".txt")) and data and not data.endswith(b"\n"):
            found.append(f"{name} has half a line")
        if name in whole and not name.endswith((".jsonl", ".txt")) and data != whole[name]:
            found.append(f"{name} is not complete")
    return found


def main(root: Path, name: str, count: int) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["PEASY_HOME"] = str(root / "home")
    os.environ["TZ"] = "UTC"
    work, result = WORK[name], root / "result.json"

    def prepared(trial: str) -> Path:
        folder = root / trial
        folder.mkdir()
        (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
        return folder

    folder = prepared("whole")
    attempt(work, folder, result, 0, 0)  # in this process: late imports and caches are made once for all forks
    undisturbed = json.loads(result.read_text())
    assert undisturbed["error"] is None, undisturbed
    writes, wrong = undisturbed["writes"], []
    whole, expected = contents(folder), outcome(folder / "run") if name == "train" else None
    stride = max(1, 2 * writes // count) if count else 1
    trials = [(at, number) for at in range(1, writes + 1, stride) for number in (errno.ENOSPC, errno.EIO)]
    for at, number in trials:
        label, folder = f"{errno.errorcode[number]} at write {at}", prepared(f"trial-{at}-{number}")
        assert in_child(partial(attempt, work, folder, result, at, number)) == 0
        known = {} if name == "train" else whole
        wrong += [f"{label}: {problem}" for problem in problems(json.loads(result.read_text()), number, folder, known)]
        assert in_child(partial(attempt, work, folder, result, 0, 0)) == 0
        again = json.loads(result.read_text())
        same = again["error"] is None and (
            outcome(folder / "run") == expected if expected is not None else contents(folder) == whole
        )
        wrong += [] if same else [f"{label}: done again, it ends with {again['error'] or 'another result'}"]
        shutil.rmtree(folder)
    sys.stdout.write(json.dumps({"trials": len(trials), "writes": writes, "wrong": wrong}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2], int(sys.argv[3]))
