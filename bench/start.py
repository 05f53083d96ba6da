"""How long the first minute takes on the clock: `import peasy`, `peasy --help`, `peasy demo`.

    python -m bench.start

A bound that is broken is exit code 1.
"""

import subprocess
import sys

from bench.measure import alternate, machine

WORDS = {"import": ["-c", "import peasy"], "help": ["-m", "peasy", "--help"], "demo": ["-m", "peasy", "demo"]}
BOUNDS = {"import": 0.2, "help": 0.5, "demo": 2.0}


def start(words: list[str]) -> None:
    subprocess.run([sys.executable, *words], capture_output=True, check=True)


def main() -> None:
    print(machine())
    measured = alternate(7, **{name: lambda words=words: start(words) for name, words in WORDS.items()})
    for name, took in measured.items():
        print(f"{took}   should be under {BOUNDS[name]} s")
    sys.exit(any(took.median > BOUNDS[name] for name, took in measured.items()))


if __name__ == "__main__":
    main()
