"""Accuracy of the presets after minutes of training: story endings, dates and amounts in French, a larger corpus.

    python -m bench.tasks [stories] [locales] [tatoeba]

`stories`: after 3 minutes the small gpt chooses at least 98 % of the endings of the validation split, and a 5-gram
model stays within 5 points of chance. `locales`: after 5 minutes the small translator translates at least 97 % of the
dates, units and amounts of the validation split exactly. `tatoeba`: 20 minutes each for the Transformer and for the
recurrent translator of 2015, the Transformer must be better; only if PEASY_TATOEBA names a folder with train.tsv and
valid.tsv. Without a name, all tasks run that can. The runs are kept under `runs/tasks`. A missed bound is exit code 1.
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
from peasy.models.preset import ModelSize

RUNS = Path("runs/tasks")
EXACT = ("date", "unit", "money")


def stories() -> bool:
    gpt = _train("gpt", "stories", 3, preset="speedrun")
    ngram = peasy.train("ngram", "stories", preset="base", run=_unused(RUNS / "stories-5-gram"))
    gpt_accuracy, ngram_accuracy = (peasy.evaluate(run.folder, "stories")["ending accuracy"] for run in (gpt, ngram))
    print(f"stories: gpt {gpt_accuracy:.2%} of the endings (>= 98 %), 5-gram {ngram_accuracy:.2%} (45 to 55 %)")
    return gpt_accuracy >= 0.98 and abs(ngram_accuracy - 0.5) <= 0.05


def locales() -> bool:
    run = _train("translator", "locales:en-fr", 5)
    evaluation = peasy.evaluate(run.folder, "locales:en-fr")
    categories = {name: (correct, count) for name, correct, count in evaluation.categories}
    correct, count = (sum(categories[name][index] for name in EXACT) for index in (0, 1))
    details = ", ".join(f"{name} {categories[name][0] / categories[name][1]:.2%}" for name in EXACT)
    print(f"locales en-fr: {correct / count:.2%} of {count:,} exactly right (>= 97 %): {details}")
    return correct / count >= 0.97


def tatoeba() -> bool:
    folder = os.environ.get("PEASY_TATOEBA")
    if not folder:
        print("tatoeba: skipped, PEASY_TATOEBA names no folder")
        return True
    scores = {}
    for kind in ("translator", "rnn-translator"):
        evaluation = peasy.evaluate(_train(kind, folder, 20, {"batch_size": 96}).folder, folder)
        scores[kind] = evaluation["BLEU"]
        description = evaluation.data()["description"]["BLEU"]
        print(f"tatoeba: {kind} BLEU {scores[kind]:.2f}, chrF {evaluation['chrF2']:.2f} (greedy, {description})")
    return scores["translator"] > scores["rnn-translator"]


TASKS: dict[str, Callable[[], bool]] = {"stories": stories, "locales": locales, "tatoeba": tatoeba}


def _train(
    kind: str, data: str, minutes: float, settings: Mapping[str, Any] | None = None, preset: ModelSize | None = None
) -> TrainResult:
    start, cpu_start = time.monotonic(), time.process_time()
    folder = _unused(RUNS / f"{Path(data).name.replace(':', '-')}-{kind}")
    run = peasy.train(kind, data, preset=preset, minutes=minutes, run=folder, settings=settings)
    seconds, cpu_seconds = time.monotonic() - start, time.process_time() - cpu_start
    steps = sum(line["event"] == "step" for line in run.metrics)
    print(f"{kind} on {data}: {steps:,} steps, {seconds:.0f} s wall time, {cpu_seconds:.0f} s CPU time")
    return run


def _unused(folder: Path) -> Path:
    """Return the folder, or its name with the first unused number: earlier runs stay."""
    number, path = 1, folder
    while path.exists():
        number += 1
        path = folder.with_name(f"{folder.name}-{number}")
    return path


def main(names: list[str]) -> int:
    print(machine())
    if unknown := set(names) - set(TASKS):
        print(f"There is no task {', '.join(sorted(unknown))}. Choose from {', '.join(TASKS)}.")
        return 2
    passed = [TASKS[name]() for name in (names or TASKS)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
