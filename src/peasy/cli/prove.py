"""`peasy prove`: verifies execution paths of a model, or the user's own attention code."""

import sys

from peasy.cli.command import CommandOutput, Flags, StrList, TextSource, read_texts
from peasy.cli.derive import Call, derive
from peasy.cli.progress import ProgressLine
from peasy.commands import prove as commands
from peasy.errors import UsageError


@derive(commands.prove, hide=("target", "prompts", "announce", "progress"))
def prove(
    call: Call[commands.ProveResult | commands.DoctorResult],
    model: str,
    *texts: TextSource,
    prompt: StrList = None,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Verify that all execution paths of a model agree, or check your own attention code.

    For example:

        peasy prove my-model
        peasy prove my-model "The pizza came out of the oven" --prompt prompts.txt
        peasy prove attention.py:attention
        peasy prove attention.py:attend --call "attend(q, k, v, mask)"

    A model is run with and without KV cache, alone and in a batch, padded, in chunks, with fused kernels and by the
    formula, with packed weights, exported and loaded again; the logits are compared each time. A difference is located
    by layer, head and position. A function or class in a Python file is compared with the formula, and its mistake is
    named. Exit code 8 if something is wrong.

    Args:
        model: Run name, folder, built-in model or hub id; or file.py:name for your own code, which is executed.
        texts: Texts to verify with; in a file or stdin (-), one per line.
        prompt: Same as texts, as a flag; can be repeated.
    """
    limits = (call.arguments.get("max_tokens"), call.arguments.get("timeout"))
    if any(isinstance(limit, int | float) and limit <= 0 for limit in limits):
        raise UsageError("--max-tokens and --timeout must be above 0.")
    rows = [line for source in (*texts, *(prompt or ())) for line in read_texts(source, "prove") if line.strip()]
    if (texts or prompt) and not rows:
        raise UsageError("The texts are empty.", hint=f'For example: peasy prove {model} "The pizza came out"')
    on_notice = None if flags.quiet or flags.json else lambda line: print(line, file=sys.stderr)
    result = call(model, rows or None, announce=on_notice, progress=ProgressLine("verifying", flags))
    suggestions = [] if result.passed else [f"peasy prove {model} --out proof.html"]
    return CommandOutput(result, suggestions=suggestions, exit_code=0 if result.passed else 8, summary=result.verdict)
