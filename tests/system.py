"""What the tests need from the system beyond Python: `--install` gets it where that is allowed.

Without an argument: say what was left out for want of it, and how to get it.
"""

import os
import shutil
import subprocess
import sys

from peasy.cli.doctor import find_chromium

_APT = ["apt-get", "install", "--yes", "--quiet", "--quiet", "--no-install-recommends", "chromium", "fonts-noto-core"]


def install() -> None:
    if find_chromium() or os.name != "posix" or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    print("Installing Chromium for the tests of pages ...", flush=True)
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "--quiet", "--quiet"], _APT):
        if subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False).returncode:
            return  # left_out says the rest


def left_out() -> None:
    if not find_chromium():
        print("\nLeft out: the tests of pages in a browser, because Chromium is not installed.")
        print("To run them too: sudo apt-get install chromium (or any Chromium or Chrome on the PATH), then make test.")


if __name__ == "__main__":
    install() if "--install" in sys.argv else left_out()
