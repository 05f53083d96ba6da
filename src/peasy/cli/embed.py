"""`peasy embed`: text embeddings and cosine similarities."""

from typing import Literal

from peasy.cli.command import CommandOutput, Flags, TextSource, read_texts
from peasy.cli.confirm import confirm_callback


def embed(
    model: str,
    *texts: TextSource,
    pooling: Literal["mean", "cls", "last"] | None = None,
    flags: Flags = Flags(),
) -> CommandOutput:
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
        pooling: Mean over tokens, first token (cls) or last token; default: the pooling of the encoder.
    """
    from peasy.commands.embed import embed as command

    rows = [line for source in texts or (None,) for line in read_texts(source, "embed") if line.strip()]
    result = command(
        model, rows, pooling=pooling, device=flags.device, offline=flags.offline, confirm=confirm_callback(flags)
    )
    count, dims = result.vectors.shape
    brief = f"{count:,} vector{'s' * (count != 1)} of {dims} dimensions"
    return CommandOutput(result, suggestions=[f"peasy embed {model} FILE --out vectors.npy"], summary=brief)
