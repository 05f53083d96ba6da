"""What the presets learn in minutes: the endings of stories, dates and amounts in French, sentences of a larger corpus.

    python -m bench.tasks [stories] [locales] [tatoeba]

`stories`: after 3 minutes the small gpt chooses at least 98 % of the held-out endings, and a 5-gram stays within 5
points of chance. `locales`: after 5 minutes the small translator writes at least 97 % of the held-out dates, units and
money without one mistake. `tatoeba`: 20 minutes each for the Transformer and for the recurrent translator of 2015, the
Transformer ahead; only where PEASY_TATOEBA names a folder with train.tsv and valid.tsv. Without a name, the first two
run, and the third where it can. The runs are kept under `runs/tasks`. A broken bound is exit code 1.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import peasy
from bench.measure import machine
from peasy.commands.train import TrainResult

RUNS = Path("runs/tasks")
EXACT = ("date", "unit", "money")


def stories() -> bool:
    learned = _train("gpt", "stories", 3)
    counted = peasy.train("ngram", "stories", preset="base", run=_free(RUNS / "stories-5-gram"))
    found, chance = (peasy.evaluate(run.folder, "stories")["endings"] for run in (learned, counted))
    print(f"stories: gpt {found:.2%} of the endings (>= 98 %), 5-gram {chance:.2%} (45 to 55 %)")
    return found >= 0.98 and abs(chance - 0.5) <= 0.05


def locales() -> bool:
    run = _train("translator", "locales:en-fr", 5)
    found = peasy.evaluate(run.folder, "locales:en-fr")
    by_name = {name: (right, asked) for name, right, asked in found.facts.categories}
    right, asked = (sum(by_name[name][place] for name in EXACT) for place in (0, 1))
    each = ", ".join(f"{name} {by_name[name][0] / by_name[name][1]:.2%}" for name in EXACT)
    print(f"locales en-fr: {right / asked:.2%} of {asked:,} exactly right (>= 97 %): {each}")
    return right / asked >= 0.97


def tatoeba() -> bool:
    folder = os.environ.get("PEASY_TATOEBA")
    if not folder:
        print("tatoeba: left out, for PEASY_TATOEBA names no folder")
        return True
    scores = {}
    for kind in ("translator", "rnn-translator"):
        found = peasy.evaluate(_train(kind, folder, 20, {"batch": 96}).folder, folder)
        scores[kind] = found["BLEU"]
        says = found.data()["description"]["BLEU"]
        print(f"tatoeba: {kind} BLEU {found['BLEU']:.2f}, chrF {found['chrF2']:.2f} (greedy, {says})")
    return scores["translator"] > scores["rnn-translator"]


TASKS: dict[str, Callable[[], bool]] = {"stories": stories, "locales": locales, "tatoeba": tatoeba}


def _train(kind: str, data: str, minutes: float, settings: Mapping[str, Any] | None = None) -> TrainResult:
    start, used = time.monotonic(), time.process_time()
    folder = _free(RUNS / f"{Path(data).name.replace(':', '-')}-{kind}")
    run = peasy.train(kind, data, minutes=minutes, run=folder, settings=settings)
    seconds, used = time.monotonic() - start, time.process_time() - used
    steps = sum(line["event"] == "step" for line in run.metrics)
    print(f"{kind} on {data}: {steps:,} steps, {seconds:.0f} s on the clock, {used:.0f} s of processor time")
    return run


def _free(folder: Path) -> Path:
    """The folder, or the first of the names after it that is not taken: earlier runs stay."""
    taken = 1
    found = folder
    while found.exists():
        taken += 1
        found = folder.with_name(f"{folder.name}-{taken}")
    return found


def main(asked: list[str]) -> int:
    print(machine())
    if unknown := set(asked) - set(TASKS):
        print(f"There is no task {', '.join(sorted(unknown))}. There are {', '.join(TASKS)}.")
        return 2
    kept = [TASKS[name]() for name in (asked or TASKS)]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
