"""How long the first minute takes on the clock: `import peasy`, `peasy --help`, `peasy demo`."""

import statistics
import subprocess
import sys
import time

CASES = {
    "import peasy": (["-c", "import peasy"], 0.2),
    "peasy --help": (["-m", "peasy", "--help"], 0.5),
    "peasy demo": (["-m", "peasy", "demo"], 2.0),
}


def seconds(words: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *words], capture_output=True, check=True)
    return time.perf_counter() - start


def main() -> None:
    for name, (words, bound) in CASES.items():
        took = [seconds(words) for _ in range(7)]
        print(f"{name:<14} {statistics.median(took):.2f} s (best {min(took):.2f}), should be under {bound} s")


if __name__ == "__main__":
    main()
