"""`peasy generate`: text generation with streaming output."""

import random
import sys
from typing import TYPE_CHECKING, Literal

from peasy.cli.command import CommandOutput, CountFlag, Flags, Switch, TextSource, read_texts
from peasy.cli.confirm import confirm_callback
from peasy.cli.sampling_flags import SamplingFlags
from peasy.cli.stream import TextStream, print_event
from peasy.views.generation import unknown_tokens_note

if TYPE_CHECKING:
    from peasy.commands.generate import GenerationJob


def generate(
    model: str,
    prompt: TextSource = None,
    *,
    n: CountFlag = 1,
    max_tokens: int = 64,
    truncate: Literal["error", "left"] = "error",
    weights: Literal["auto", "float32", "bfloat16", "int8"] = "auto",
    speculative: Switch = False,
    no_cache: Switch = False,
    show_cache: Switch = False,
    show_probabilities: Switch = False,
    lines: Switch = False,
    sampling: SamplingFlags = SamplingFlags(),
    flags: Flags = Flags(),
) -> CommandOutput:
    """Generate text from a prompt, streamed as it is generated.

    For example:

        peasy generate stories "The pizza"
        peasy generate stories "The pizza" --temperature 0.8 -n 3 --seed 1
        peasy generate stories "Once" --show-probabilities --show-cache --max-tokens 12
        peasy generate stories prompts.txt --json
        cat prompt.txt | peasy generate stories -

    Ctrl-C stops and keeps the text generated so far.

    Args:
        model: Run name, folder, built-in model or Hugging Face hub id.
        prompt: Prompt; in a file, one per line; - reads stdin.
        n: Number of texts per prompt, sampled with seed, seed + 1, ...
        max_tokens: Maximum number of tokens to generate.
        truncate: A prompt longer than the context is an error, or is truncated on the left.
        weights: Weight format for inference; float32 is exact, int8 is smaller and faster.
        speculative: Speculative decoding with n-grams of the text so far; the result is the same.
        no_cache: Decode without a KV cache, for comparison.
        show_cache: Show cached and computed tokens of each step, with and without the KV cache.
        show_probabilities: Show the probability of each token and its alternatives.
        lines: Each line of stdin is a separate prompt.
    """
    from peasy.commands.generate import GenerationJob
    from peasy.commands.load import load

    texts = read_texts(prompt, "generate", lines=lines)
    options = sampling.as_kwargs() | {"max_tokens": max_tokens, "seed": pick_seed(flags, sampling.temperature)}
    logprobs = 5 if show_probabilities else 0 if flags.json else None
    loaded = load(model, device=flags.device, offline=flags.offline, confirm=confirm_callback(flags))
    writer = GenerationJob(
        loaded,
        texts,
        n=n,
        weights=weights,
        use_cache=not no_cache,
        truncate=truncate,
        speculative=speculative,
        logprobs=logprobs,
        **options,
    )
    return _run(writer, model, flags, show_cache, show_cache or show_probabilities)


def pick_seed(flags: Flags, temperature: float) -> int:
    """Return the given seed; a random one if sampling is random."""
    if flags.seed is not None:
        return flags.seed
    return random.randrange(2**31) if temperature > 0 else 0


def _run(job: "GenerationJob", model: str, flags: Flags, show_cache: bool, details: bool) -> CommandOutput:
    printed, interrupted = _stream(job, flags, details)
    if len(job.outputs) == 1:
        job.raise_first_error()
    result = job.result(show_cache=show_cache and not interrupted)
    if printed and not flags.quiet:
        notes = [unknown_tokens_note(count)] if (count := job.outputs[0].num_unknown) else []
        print(*notes, result.note, sep="\n", file=sys.stderr)
    prompt = job.prompts[0] if len(job.prompts[0]) < 60 else job.prompts[0][:57] + "..."
    suggestions = [] if details else [f'peasy generate {model} "{prompt}" --show-probabilities']
    return CommandOutput(result, suggestions=suggestions, exit_code=130 if interrupted else 0, already_printed=printed)


def _stream(job: "GenerationJob", flags: Flags, details: bool) -> tuple[bool, bool]:
    """Run generation; return (whether the text is already printed, whether it was interrupted).

    Several texts, or one with `details`, are printed when they are finished.
    """
    stream = TextStream(job.prompts[0], flags) if len(job.outputs) == 1 and not details else None
    try:
        for event in job.events():
            if flags.json:
                print_event(event, job.loaded.output_tokenizer())
            elif stream is not None:
                stream.write(event)
    except KeyboardInterrupt:
        return stream is not None and stream.close(), True
    return stream is not None and stream.close(), False
