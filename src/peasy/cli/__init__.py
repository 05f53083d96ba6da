"""TERMINAL DOOR: argv in, a verb asked, its answer printed or saved; one small file per verb.

May import: every room. Imported by: nobody.
In: argv, settings, stdin. Out: stdout (the result), stderr (the rest), files, an exit code.

To add a verb, write one line in `verb.py` and one file beside it:

    # cli/greet.py
    from peasy.cli.door import Answer, Flags, Text

    def greet(text: Text, *, loud: bool = False, flags: Flags = Flags()) -> Answer:
        '''Greet somebody.

        For example:

            peasy greet "Ada Lovelace" --loud
            echo Ada | peasy greet -

        Args:
            text: Whom to greet; - reads stdin.
            loud: In capitals.
        '''
        from peasy.workbench.greet import greet as verb  # imported here, so that --help stays fast

        return Answer(verb(text, loud=loud), next=["peasy greet Grace"])

The answer's `shown` has `document()` and `data()`; the door does the rest: `--json`, `--out`, colours, errors,
exit codes. Raise a PeasyError for what a person can put right. Call `peasy.parts.need("torch")` for an optional part.
A verb needs a test in tests/cli and an example in its docstring (tests/house holds both).
"""


def main() -> None:
    """The `peasy` command."""
    try:
        from peasy.cli.app import run

        code = run()
    except KeyboardInterrupt:  # while the libraries were still being read
        code = 130
    raise SystemExit(code)
