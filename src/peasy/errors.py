"""User-facing errors with exit codes and hints: what is wrong, where, and what to do next."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class PeasyError(Exception):
    """Base class of errors that the user can fix; `hint` says how."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PeasyError):
    """The command was not understood."""

    code, exit_code = "usage", 2


class UnknownKeyword(UsageError, TypeError):
    """A function was called with a keyword that it does not have; also a TypeError, as in Python itself."""


class NotFound(PeasyError):
    """A named file, model or example does not exist."""

    code, exit_code = "not-found", 3


class InvalidInput(PeasyError):
    """Invalid file, array, setting or checkpoint."""

    code, exit_code = "invalid-input", 4


class MissingExtra(PeasyError):
    """An optional dependency (an extra of peasy) is not installed."""

    code, exit_code = "missing-extra", 5


class ResourceUnavailable(PeasyError):
    """Memory, disk space or a port is not available."""

    code, exit_code = "resource-unavailable", 6


class NeedsNetwork(PeasyError):
    """The network is needed but is off or does not respond."""

    code, exit_code = "needs-network", 7


SYNONYMS: dict[str, str] = {
    "ablation": "ablate",
    "address": "host",
    "alignment": "align",
    "answers": "answer_key",
    "app": "studio",
    "assume_yes": "yes",
    "attention_rollout": "rollout",
    "batch": "batch_size",
    "beam": "num_beams",
    "beam_size": "num_beams",
    "beam_width": "num_beams",
    "beams": "num_beams",
    "benchmark": "bench",
    "bind": "host",
    "block_size": "seq_len",
    "budget": "max_memory",
    "colour": "no_color",
    "compare": "diff",
    "complete": "generate",
    "context": "seq_len",
    "context_length": "seq_len",
    "convert": "export",
    "cpu": "device",
    "cuda": "device",
    "dataset": "data",
    "datasets": "data",
    "del": "rm",
    "delete": "rm",
    "describe": "show",
    "do_sample": "temperature",
    "download": "import",
    "duration": "minutes",
    "encode": "tokenize or embed",
    "epochs": "steps or minutes",
    "eval": "evaluate",
    "export_to": "out",
    "file": "out",
    "fine_tune": "train",
    "finetune": "init_from or train",
    "fit": "train",
    "force": "yes",
    "from": "init_from",
    "from_pretrained": "init_from",
    "gpu": "device",
    "gpu_memory": "max_memory",
    "gpus": "num_processes or accelerators",
    "gui": "studio",
    "infer": "generate",
    "info": "show or version",
    "inspect": "look",
    "iterations": "steps",
    "knockout": "ablate",
    "learning_rate": "lr",
    "length": "max_tokens or seq_len",
    "limit": "max_samples",
    "logit_lens": "lens",
    "lookup": "speculative",
    "ls": "list",
    "mask": "cut",
    "max_batch_size": "max_num_seqs",
    "max_examples": "max_samples",
    "max_iters": "steps",
    "max_length": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_seq_len": "seq_len",
    "max_steps": "steps",
    "max_time": "minutes or timeout",
    "memory": "max_memory",
    "model_size": "preset",
    "n_predict": "max_tokens",
    "ngram_speculation": "speculative",
    "no_colour": "no_color",
    "nproc_per_node": "num_processes",
    "num_epochs": "steps or minutes",
    "num_gpus": "num_processes or accelerators",
    "num_heads": "heads",
    "num_return_sequences": "n",
    "num_runs": "repeats",
    "num_samples": "n or max_samples",
    "num_sequences": "n",
    "num_train_epochs": "steps or minutes",
    "off": "ablate",
    "output": "out",
    "output_dir": "out",
    "per_device_train_batch_size": "batch_size",
    "precision": "dtype or weights",
    "predict": "generate",
    "pretrained": "init_from",
    "processes": "num_processes",
    "prompt_lookup_num_tokens": "speculative",
    "quantization": "dtype or weights",
    "quantize": "dtype or weights",
    "random_seed": "seed",
    "random_state": "seed",
    "reference": "gold",
    "remove": "rm",
    "resume_from": "resume",
    "resume_from_checkpoint": "resume",
    "rounds": "repeats",
    "save": "out",
    "seq_length": "seq_len",
    "server": "serve",
    "silent": "quiet",
    "solution": "answer_key",
    "solutions": "answer_key",
    "stop_sequences": "stop",
    "stop_strings": "stop",
    "system_prompt": "system",
    "temp": "temperature",
    "test": "prove",
    "tile": "tile_size",
    "to": "format",
    "token": "api_key",
    "tokens": "max_tokens",
    "torch_dtype": "dtype",
    "train_data": "data",
    "truncation": "truncate",
    "ui": "studio",
    "use_cache": "no_cache",
    "utilization": "mfu",
    "verbosity": "verbose",
    "verify": "prove",
    "web": "studio",
    "word": "track",
    "workers": "num_processes",
    "worksheet": "exercise",
    "world_size": "num_processes",
    "zero": "ablate",
}
"""Names that other tools give to the parameters of peasy, as flags or as keywords: name -> ours ("a or b" = either)."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Return a "Did you mean" sentence with the known word of the same meaning (`SYNONYMS`) or spelling, or None.

    >>> did_you_mean("jurney", ["journey", "pizza"])
    'Did you mean journey?'
    >>> did_you_mean("--max-new-tokens", ["--max-tokens", "--model"])
    'Did you mean --max-tokens?'
    """
    known = list(known)
    synonyms = SYNONYMS.get(_as_keyword(word), "").split(" or ")
    if meant := [name for synonym in synonyms for name in known if _as_keyword(name) == synonym]:
        return f"Did you mean {' or '.join(meant)}?"
    by_lower = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"Did you mean {by_lower[near[0]]}?" if near else None


def _as_keyword(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise for the first keyword that a function does not have, with the closest one that it has.

    >>> check_keywords("generate", {"max_new_tokens": 5}, ("max_tokens", "seed"))
    Traceback (most recent call last):
    peasy.errors.UnknownKeyword: generate has no parameter max_new_tokens. Did you mean max_tokens?
    """
    known = list(known)
    for name in given:
        if name not in known:
            suggestion = did_you_mean(name, known) or f"It has {', '.join(known)}."
            raise UnknownKeyword(f"{function} has no parameter {name}. {suggestion}")


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters of a function or class.

    >>> parameter_names(did_you_mean)
    ('word', 'known')
    """
    return tuple(inspect.signature(function).parameters)


def with_checked_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with unknown keywords rejected by `check_keywords`; one with ** checks them itself."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        check_keywords(function.__name__, kwargs, parameters)
        return function(*args, **kwargs)

    return checked


def lookup(name: str | T, known: Mapping[str, T], kind: str) -> T:
    """Look up a name in `known`, or raise with the closest match; a value that is not a string is returned as is.

    >>> lookup("plus", {"plus": 1, "minus": -1}, "sign")
    1
    """
    if not isinstance(name, str):
        return name
    if name not in known:
        hint = did_you_mean(name, known) or f"Known: {', '.join(known)}."
        raise InvalidInput(f'There is no {kind} "{name}".', hint=hint)
    return known[name]
