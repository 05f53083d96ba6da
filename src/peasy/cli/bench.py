"""`peasy bench`: prefill and decode speed by weight format."""

from peasy.cli.command import CommandOutput, Flags
from peasy.cli.derive import Call, derive
from peasy.cli.progress import ProgressLine
from peasy.commands import bench as commands


@derive(commands.bench, hide=("on_status",))
def bench(call: Call[commands.BenchResult], model: str, *, flags: Flags = Flags()) -> CommandOutput:
    """Measure prefill and decode speed of a model on this machine, by weight format.

    For example:

        peasy bench stories
        peasy bench openai-community/gpt2 --max-tokens 128 --repeats 5

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id; must be a decoder.
    """
    line = ProgressLine("", flags)
    result = call(model, on_status=line.update)
    line.update("")
    return CommandOutput(result)
