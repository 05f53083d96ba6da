"""Command line interface, built on cyclopts: one function per command.

May import: every package. Imported by: no other package.
In: argv, settings, stdin. Out: stdout (the result), stderr (the rest), files, an exit code.

To add a command, write a table in `commands.toml` (group, summary, examples) and a function in a file of its name:

    # cli/greet.py
    from peasy.cli.command import CommandOutput, Flags, TextArg

    def greet(text: TextArg, *, loud: bool = False, flags: Flags = Flags()) -> CommandOutput:
        '''Print a greeting.

        Args:
            text: Name to greet; - reads stdin.
            loud: Print in capitals.
        '''
        from peasy.commands.greet import greet as command  # imported here, so that --help stays fast

        return CommandOutput(command(text, loud=loud), suggestions=["peasy greet Grace"])

A result has `document()` and `data()`; this package does the rest: `--json`, `--out`, colours, errors, exit codes.
Raise a PeasyError for errors the user can fix; a missing optional dependency is named by its extra.
A command needs a test in tests/cli and an example in its help (checked by tests).
"""


def main() -> None:
    """Entry point of the `peasy` command."""
    try:
        from peasy.cli.app import run

        code = run()
    except KeyboardInterrupt:  # while modules are still being imported
        code = 130
    raise SystemExit(code)
