"""`peasy embed`: text embeddings and cosine similarities."""

from peasy.cli.command import CommandOutput, Flags, TextSource, read_texts
from peasy.cli.derive import Call, derive
from peasy.commands import embed as commands


@derive(commands.embed)
def embed(call: Call[commands.EmbedResult], model: str, *texts: TextSource, flags: Flags = Flags()) -> CommandOutput:
    """Compute text embeddings and their cosine similarities.

    For example:

        peasy embed sentences "The pizza was good." "It tasted great." "It rains."
        peasy embed sentences sentences.txt
        peasy embed sentences sentences.txt --out vectors.npy
        peasy embed sentences sentences.txt --out vectors.jsonl
        peasy embed my-gpt "The pizza" "The oven" --pooling last

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        texts: Texts; in a file or stdin (-), one per line.
    """
    result = call(model, [line for text in texts or (None,) for line in read_texts(text, "embed") if line.strip()])
    count, dims = result.vectors.shape
    summary = f"{count:,} vector{'s' * (count != 1)} of {dims} dimensions"
    return CommandOutput(result, suggestions=[f"peasy embed {model} FILE --out vectors.npy"], summary=summary)
