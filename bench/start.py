"""Start-up time: `import peasy`, `peasy --help`, `peasy demo`.

    python -m bench.start

A missed bound is exit code 1.
"""

import subprocess
import sys

from bench.measure import alternate, machine

COMMANDS = {"import": ["-c", "import peasy"], "help": ["-m", "peasy", "--help"], "demo": ["-m", "peasy", "demo"]}
BOUNDS = {"import": 0.2, "help": 0.5, "demo": 2.0}


def run(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], capture_output=True, check=True)


def main() -> None:
    print(machine())
    commands = {name: lambda arguments=arguments: run(arguments) for name, arguments in COMMANDS.items()}
    timings = alternate(7, **commands)
    for name, timing in timings.items():
        print(f"{timing}   at most {BOUNDS[name]} s")
    sys.exit(any(timing.median > BOUNDS[name] for name, timing in timings.items()))


if __name__ == "__main__":
    main()
