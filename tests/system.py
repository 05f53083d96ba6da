"""What the tests need from the system beyond Python: `--install` gets it where that is allowed.

Without an argument: say what was left out for want of it, and how to get it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from peasy.cli.doctor import find_chromium


@dataclass(frozen=True)
class Need:
    """A program that some tests use, and the Debian packages that bring it."""

    program: str
    tests: str
    find: Callable[[], str | None]
    packages: str


NEEDS = (
    Need("Chromium", "the tests of pages in a browser", lambda: find_chromium(), "chromium fonts-noto-core"),
    Need("pdflatex", "the tests that compile LaTeX", lambda: shutil.which("pdflatex"), "texlive-latex-base"),
)


def missing() -> list[Need]:
    return [need for need in NEEDS if not need.find()]


def install() -> None:
    if not missing() or os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print(f"Installing for the tests: {', '.join(need.program for need in missing())} ...", flush=True)
    packages = [package for need in missing() for package in need.packages.split()]
    apt = ["apt-get", "--yes", "--quiet", "--quiet"]
    for command in ([*apt, "update"], [*apt, "install", "--no-install-recommends", *packages]):
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode:
            return  # left_out says the rest


def left_out() -> None:
    for need in missing():
        print(f"\nLeft out: {need.tests}, because {need.program} is not installed.")
        print(f"To run them too: sudo apt-get install {need.packages} or bring {need.program} yourself.")


if __name__ == "__main__":
    install() if "--install" in sys.argv else left_out()
