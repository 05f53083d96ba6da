"""`peasy tokenize`."""

from peasy.cli.consent import asking
from peasy.cli.door import Answer, Flags, Text


def tokenize(model: str, text: Text, *, flags: Flags = Flags()) -> Answer:
    """Show the tokens that a model makes of a text: pieces, ids, offsets, words.

    For example:

        peasy tokenize sentence-transformers/all-MiniLM-L6-v2 "The pizza came out of the oven"
        peasy tokenize ./my-model "Easy peasy lemon squeezy"
        peasy tokenize tokenizer.json - --json < poem.txt

    Args:
        model: A folder, a run, a hub id, or a tokenizer.json.
        text: What to cut into tokens; - reads stdin.
    """
    from peasy.workbench.tokenize import tokenize as verb

    result = verb(model, text, offline=flags.offline, ask=asking(flags))
    return Answer(result, brief=f"{len(result.encoding)} tokens")
