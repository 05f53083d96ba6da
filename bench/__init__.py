"""Side-by-side measurements: `python -m bench.NAME` from the project root. The rules are in README.md."""
