"""System programs that some tests need: `--install` installs the missing ones where permitted.

Without an argument: report which tests were left out, and how to install what they program.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from peasy.cli.doctor import find_chromium


@dataclass(frozen=True)
class RequiredProgram:
    """Program that some tests use, and the Debian packages that contain it."""

    name: str
    tests: str
    find: Callable[[], str | None]
    packages: str


REQUIRED_PROGRAMS = (
    RequiredProgram("Chromium", "the tests of pages in a browser", lambda: find_chromium(), "chromium fonts-noto-core"),
    RequiredProgram("pdflatex", "the tests that compile LaTeX", lambda: shutil.which("pdflatex"), "texlive-latex-base"),
)


def missing() -> list[RequiredProgram]:
    return [program for program in REQUIRED_PROGRAMS if not program.find()]


def install() -> None:
    if not missing() or os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"Installing for the tests: {', '.join(program.name for program in missing())} ...", flush=True)
    packages = [package for program in missing() for package in program.packages.split()]
    apt = ["apt-get", "--yes", "--quiet", "--quiet"]
    for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", *packages]):
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode:
            return  # report_left_out() reports what is still missing


def report_left_out() -> None:
    for program in missing():
        print(f"\nLeft out: {program.tests}, because {program.name} is not installed.")
        print(f"To run them too: sudo apt-get install {program.packages} (or install {program.name} yourself).")


if __name__ == "__main__":
    install() if "--install" in sys.argv else report_left_out()
