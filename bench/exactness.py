"""Table of docs/exactness.md: largest differences of edits, sweeps and attribution from other tools, same weights.

    python -m bench.exactness          # writes docs/exactness.md

Runs tests/equivalence/test_interventions.py and reads what it measured; a tool that is not installed has no column.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from xml.etree import ElementTree

TOOLS = {"transformers": "transformers", "TransformerLens": "transformer-lens", "captum": "captum"}
INTRODUCTION = """# The same numbers as other tools

Edits, sweeps and direct logit attribution on one random GPT-2 (3 layers, 4 heads, float32): the largest difference of
any logit from hooks on transformers, from TransformerLens and from captum. Tests hold edits to 1e-5, sums of logits
to 1e-4. Written by `python -m bench.exactness`.
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        tests = ["tests/equivalence/test_interventions.py", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        tests += ["-o", "junit_family=xunit1"]  # which has properties
        code = subprocess.run([sys.executable, "-m", "pytest", *tests], check=False).returncode
        found = [node.get("value", "").split("\t") for node in ElementTree.parse(report).iter("property")]
    differences = {(case, tool): number for case, tool, number in found}
    tools = [tool for tool in TOOLS if any(tool == used for _, used in differences)]
    cases = dict.fromkeys(case for case, _ in differences)
    rows = [[case, *(differences.get((case, tool), "") for tool in tools)] for case in cases]
    header = ["", *(f"{tool} {_version(TOOLS[tool])}" for tool in tools)]
    lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
    Path("docs/exactness.md").write_text("\n".join([INTRODUCTION, *lines]) + "\n", encoding="utf-8")
    return code


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
