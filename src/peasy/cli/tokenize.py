"""`peasy tokenize`: tokens, ids and offsets of a text."""

from peasy.cli.command import CommandOutput, Flags, TextArg
from peasy.cli.confirm import confirm_callback


def tokenize(model: str, text: TextArg, *, flags: Flags = Flags()) -> CommandOutput:
    """Show the tokens of a text: pieces, ids, character offsets, words.

    For example:

        peasy tokenize sentence-transformers/all-MiniLM-L6-v2 "The pizza came out of the oven"
        peasy tokenize ./my-model "Easy peasy lemon squeezy"
        peasy tokenize tokenizer.json - --json < poem.txt

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; or a tokenizer.json file.
        text: Text to tokenize; - reads stdin.
    """
    from peasy.commands.tokenize import tokenize as command

    result = command(model, text, offline=flags.offline, confirm=confirm_callback(flags))
    return CommandOutput(result, summary=f"{len(result.encoding)} tokens")
