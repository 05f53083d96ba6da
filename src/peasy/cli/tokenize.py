"""`peasy tokenize`: tokens, ids and offsets of a text."""

from peasy.cli.command import CommandOutput, Flags, TextArg
from peasy.cli.derive import Call, derive
from peasy.commands import tokenize as commands


@derive(commands.tokenize)
def tokenize(
    call: Call[commands.TokenizeResult], model: str, text: TextArg, *, flags: Flags = Flags()
) -> CommandOutput:
    """Show the tokens of a text: pieces, ids, character offsets, words.

    For example:

        peasy tokenize sentence-transformers/all-MiniLM-L6-v2 "The pizza came out of the oven"
        peasy tokenize ./my-model "Easy peasy lemon squeezy"
        peasy tokenize tokenizer.json - --json < poem.txt

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; or a tokenizer.json file.
        text: Text to tokenize; - reads stdin.
    """
    result = call(model, text)
    return CommandOutput(result, summary=f"{len(result.encoding)} tokens")
