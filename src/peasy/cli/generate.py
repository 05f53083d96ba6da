"""`peasy generate`: text generation with streaming output, as text or as one line of JSON per event."""

import json
import random
import sys
from typing import TYPE_CHECKING

from peasy.cli.command import CommandOutput, CountFlag, Flags, Switch, TextSource, read_texts
from peasy.cli.derive import Call, derive
from peasy.commands import generate as commands
from peasy.render.json import to_plain
from peasy.views.generation import unknown_tokens_note

if TYPE_CHECKING:
    from peasy.commands.result import JsonDict
    from peasy.generation.decode import DecodeEvent
    from peasy.tokenization import Tokenizer


@derive(commands.generate, hide=("use_cache", "logprobs", "logit_bias"), options=commands.GenerateSampling)
def generate(
    call: Call[commands.GenerateResult],
    model: str,
    prompt: TextSource = None,
    *,
    n: CountFlag = 1,
    no_cache: Switch = False,
    show_cache: Switch = False,
    show_probabilities: Switch = False,
    lines: Switch = False,
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
        no_cache: Decode without a KV cache, for comparison.
        show_cache: Show cached and computed tokens of each step, with and without the KV cache.
        show_probabilities: Show the probability of each token and its alternatives.
        lines: Each line of stdin is a separate prompt.
    """
    texts = read_texts(prompt, "generate", lines=lines)
    logprobs = 5 if show_probabilities else 0 if flags.json else None
    seed = random_seed(call.arguments.get("temperature"))
    options = {"seed": seed} | call.arguments | {"n": n, "use_cache": not no_cache, "logprobs": logprobs}
    job = commands.GenerationJob(model, texts, **options)  # type: ignore[arg-type]  # the parsed flags
    details = show_cache or show_probabilities
    printed, interrupted = _stream(job, flags, details)
    if len(job.outputs) == 1:
        job.raise_first_error()
    result = job.result(show_cache=show_cache and not interrupted)
    if printed and not flags.quiet:
        notes = [unknown_tokens_note(count)] if (count := result.completions[0].num_unknown) else []
        print(*notes, result.note, sep="\n", file=sys.stderr)
    shown = texts[0] if len(texts[0]) < 60 else texts[0][:57] + "..."
    suggestions = [] if details else [f'peasy generate {model} "{shown}" --show-probabilities']
    return CommandOutput(result, suggestions=suggestions, exit_code=130 if interrupted else 0, already_printed=printed)


def random_seed(temperature: object) -> int:
    """Return the seed to use if none is given: a random one if sampling is random."""
    return random.randrange(2**31) if temperature else 0


def _stream(job: commands.GenerationJob, flags: Flags, details: bool) -> tuple[bool, bool]:
    """Run generation; return (whether the text is already printed, whether it was interrupted).

    Several texts, or one with `details`, are printed when they are finished. On a terminal the prompt is printed first,
    on stderr, so that a pipe gets only the generated text.
    """
    streams = len(job.outputs) == 1 and not (details or flags.json or flags.out is not None)
    on_terminal = sys.stderr.isatty() and sys.stdout.isatty() and not flags.quiet
    printed = interrupted = False
    try:
        for event in job.events():
            if flags.json:
                _print_event(event, job.loaded.output_tokenizer())
            elif streams and (text := getattr(event, "text", "")):
                if on_terminal and not printed:
                    print(job.prompts[0], end="", file=sys.stderr, flush=True)
                printed = True
                print(text, end="", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    if printed:
        print(flush=True)
    return printed, interrupted


def _print_event(event: "DecodeEvent", tokenizer: "Tokenizer") -> None:
    """Print one line of JSON for a token or a finish event; forward-pass events are skipped."""
    from peasy.generation.request import Ended, Token

    line: JsonDict
    if isinstance(event, Token):
        sampled = event.sampled
        line = {
            "event": "token", "index": event.choice, "position": event.index, "id": sampled.id,
            "piece": tokenizer.piece(sampled.id), "text": event.text, "logprob": sampled.logprob,
        }  # fmt: skip
    elif isinstance(event, Ended):
        line = {"event": "finished", "index": event.choice, "finish_reason": event.reason, "text": event.text}
        line |= {} if event.error is None else {"error": event.error.message}
    else:
        return
    print(json.dumps(to_plain(line), ensure_ascii=False, allow_nan=False), flush=True)
