"""`peasy generate` and `peasy chat`: text streamed as it is generated, as text or as one line of JSON per event."""

import random
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from peasy.cli.command import STDIN, CommandOutput, CountFlag, Flags, Switch, TextSource, read_texts
from peasy.cli.derive import derive
from peasy.cli.output import print_json
from peasy.commands import chat as chat_command
from peasy.commands import generate as generate_command

if TYPE_CHECKING:
    from peasy.commands.result import JsonDict
    from peasy.generation.decode import DecodeEvent
    from peasy.tokenization import Tokenizer


@derive(
    generate_command.generate, hide=("use_cache", "logprobs", "logit_bias"), options=generate_command.GenerateSampling
)
def generate(
    call: partial[generate_command.GenerateResult],
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

    Args:
        prompt: Prompt; @file reads one per line; - reads stdin.
        no_cache: Decode without a KV cache, for comparison.
        show_probabilities: Show the probability of each token and its alternatives.
        lines: Each line of stdin is a separate prompt.
    """
    texts = read_texts(prompt, "generate", lines=lines)
    logprobs = 5 if show_probabilities else 0 if flags.json else None
    seed = _random_seed(call.keywords.get("temperature"))
    options = {"seed": seed} | call.keywords | {"n": n, "use_cache": not no_cache, "logprobs": logprobs}
    job = generate_command.GenerationJob(model, texts, **options)
    details = show_cache or show_probabilities
    printed, interrupted = _stream(job, flags, details)
    if job.num_outputs == 1:
        job.raise_first_error()
    result = job.result(show_cache=show_cache and not interrupted)
    if printed and not flags.quiet:
        print(*result.completions[0].prompt_notes, result.note, sep="\n", file=sys.stderr)
    shown = texts[0] if len(texts[0]) < 60 else texts[0][:57] + "..."
    suggestions = [] if details else [f'peasy generate {model} "{shown}" --show-probabilities']
    return CommandOutput(result, suggestions=suggestions, exit_code=130 if interrupted else 0, already_printed=printed)


def _random_seed(temperature: object) -> int:
    return random.randrange(2**31) if temperature else 0


def _stream(job: generate_command.GenerationJob, flags: Flags, details: bool) -> tuple[bool, bool]:
    """Run generation; return (whether the text is already printed, whether it was interrupted).

    Several texts, or one with `details`, are printed when they are finished. On a terminal the prompt is printed first,
    on stderr, so that a pipe gets only the generated text.
    """
    streams = job.num_outputs == 1 and not (details or flags.json or flags.out is not None)
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
    print_json(line)


@derive(chat_command.chat, hide=("logprobs", "logit_bias"), options=chat_command.ChatSampling)
def chat(
    call: partial[chat_command.ChatSession],
    model: str,
    message: TextSource = None,
    *,
    temperature: float = 0.7,
    top_p: float = 0.95,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Chat with a model whose checkpoint has a chat template.

    Args:
        message: A single message; without it, each line typed or piped is one.
        temperature: Sampling temperature; 0 is greedy decoding.
        top_p: Nucleus sampling: sample from the most likely tokens with this total probability.
    """
    call.keywords.setdefault("seed", _random_seed(temperature))
    conversation, interrupted = call(model, temperature=temperature, top_p=top_p), False
    for question in [message] if message not in (None, STDIN) else _read_messages(flags):
        interrupted = _stream_answer(conversation, question or "", flags)
        if interrupted and not sys.stdin.isatty():
            break
    if temperature > 0 and not flags.quiet:
        print(f"seed {conversation.sampling.seed}", file=sys.stderr)
    return CommandOutput(conversation, already_printed=not flags.out, exit_code=130 if interrupted else 0)


def _read_messages(flags: Flags) -> Iterator[str]:
    """Yield lines of stdin, with an input prompt on a terminal."""
    live = sys.stdin.isatty() and not flags.quiet
    while True:
        if live:
            print("› ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            return
        if line.strip():
            yield line.strip()


def _stream_answer(conversation: chat_command.ChatSession, message: str, flags: Flags) -> bool:
    """Stream one answer; return True if it was interrupted."""
    pieces = conversation.send(message)
    try:
        for piece in pieces:
            if flags.json:
                print_json({"event": "piece", "text": piece})
            else:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        pieces.close()
        return True
    finally:
        if not flags.json:
            print(flush=True)
    return False
