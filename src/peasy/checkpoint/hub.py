"""Hugging Face hub: models in the local cache, and downloads after confirmation.

Only JSON, safetensors and tokenizer files are downloaded: nothing that could run code.
"""

import logging
import os
import re
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from peasy.checkpoint.ram import format_bytes
from peasy.errors import NeedsNetwork, NotFound, PeasyError, UsageError

_LOG = logging.getLogger(__name__)

_ALLOW_PATTERNS = ("*.json", "*.safetensors", "*.spm", "*.model", "*.jinja", "vocab.txt", "merges.txt")
LEGACY_IDS = {
    "bert-base-cased", "bert-base-uncased", "bert-large-uncased", "distilgpt2", "distilroberta-base", "gpt2",
    "gpt2-large", "gpt2-medium", "gpt2-xl", "roberta-base", "roberta-large", "t5-base", "t5-large", "t5-small",
}  # fmt: skip
"""Legacy hub ids without an owner. Any other name without a slash is a local name."""

_ID_PATTERN = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?(?:@[\w./-]{1,200})?")

T = TypeVar("T")

Confirm = Callable[[str], bool]
"""Callback that confirms a download; its argument is a question with the model and its size."""


def is_hub_id(name: str) -> bool:
    """Return whether a name can be a hub id, with or without a revision.

    >>> is_hub_id("openai-community/gpt2@main"), is_hub_id("gpt2"), is_hub_id("stories"), is_hub_id("../x")
    (True, True, False, False)
    """
    model_id, _ = _split_revision(name)
    return bool(_ID_PATTERN.fullmatch(name)) and ("/" in model_id or model_id in LEGACY_IDS)


def _split_revision(name: str) -> tuple[str, str | None]:
    """Split a hub id and its revision, a branch, tag or commit.

    >>> _split_revision("openai-community/gpt2@v1"), _split_revision("gpt2")
    (('openai-community/gpt2', 'v1'), ('gpt2', None))
    """
    model_id, _, revision = name.partition("@")
    return model_id, revision or None


def cache_dir() -> Path:
    """Return the cache directory of `huggingface_hub`."""
    if configured := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(configured).expanduser()
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or default).expanduser() / "hub"


def find_cached(model_id: str) -> Path | None:
    """Return the snapshot folder of a cached model (ID or ID@REVISION), or None if its weights are not cached."""
    model_id, revision = _split_revision(model_id)
    model = cache_dir() / ("models--" + model_id.replace("/", "--"))
    snapshot = model / "snapshots" / (revision or "main")
    if not snapshot.is_dir():  # a branch or a tag; a commit names its folder
        try:
            snapshot = model / "snapshots" / (model / "refs" / (revision or "main")).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
    if snapshot.parent != model / "snapshots" or not (snapshot / "config.json").is_file():
        return None
    return snapshot if any(snapshot.glob("*.safetensors")) else None


def list_cached() -> dict[str, Path]:
    """Return all cached models with weights, by id."""
    names = (folder.name.removeprefix("models--") for folder in sorted(cache_dir().glob("models--*")))
    snapshots = {name.replace("--", "/"): find_cached(name.replace("--", "/")) for name in names}
    return {model_id: snapshot for model_id, snapshot in snapshots.items() if snapshot is not None}


def fetch_model(model_id: str, confirm: Confirm | None, *, offline: bool = False) -> Path:
    """Return the folder of a hub model: from the cache, else downloaded if `confirm` returns True."""
    if (folder := find_cached(model_id)) is not None:
        return folder
    if offline or os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        hint = "List the available models: peasy models"
        raise NeedsNetwork(f"{model_id} is not in the cache, and peasy is offline.", hint=hint)
    question = f"Download {model_id} from the Hugging Face hub ({format_bytes(_download_size(model_id))})?"
    if confirm is None:
        hint = f'Confirm with --yes; in Python, load it first: peasy.load("{model_id}", yes=True)'
        raise UsageError(f"{question} This needs confirmation.", hint=hint)
    if not confirm(question):
        raise UsageError(f"{model_id} was not downloaded.", hint="Confirm in advance with --yes.")
    from huggingface_hub import snapshot_download

    _LOG.info("downloading %s to %s", model_id, cache_dir())
    repository, revision = _split_revision(model_id)
    options: dict[str, Any] = {"cache_dir": cache_dir(), "allow_patterns": list(_ALLOW_PATTERNS)}
    return Path(_call_hub(model_id, lambda: snapshot_download(repository, revision=revision, **options)))


def _download_size(model_id: str) -> int:
    from huggingface_hub import HfApi

    repository, revision = _split_revision(model_id)
    ask = partial(HfApi().model_info, repository, revision=revision, files_metadata=True, timeout=10)
    files = _call_hub(model_id, ask).siblings or []
    needed = [file for file in files if any(fnmatch(file.rfilename, pattern) for pattern in _ALLOW_PATTERNS)]
    if not any(file.rfilename.endswith(".safetensors") for file in needed):
        hint = "Choose a model that has them: peasy does not read pickle files."
        raise NotFound(f"{model_id} has no safetensors weights.", hint=hint)
    return sum(file.size or 0 for file in needed)


def _call_hub(model_id: str, request: Callable[[], T]) -> T:
    from huggingface_hub import errors

    try:
        return request()
    except PeasyError:
        raise
    except errors.GatedRepoError:
        raise NotFound(f"{model_id} is gated: accept its terms on the hub first.") from None
    except errors.RevisionNotFoundError:
        raise NotFound(f"{model_id} has no such revision.", hint="Give a branch, a tag or a commit.") from None
    except errors.RepositoryNotFoundError:
        raise NotFound(f"The hub has no model {model_id}, or it is private.") from None
    except (OSError, getattr(errors, "HTTPError", OSError), errors.OfflineModeIsEnabled) as error:
        reason = " ".join(str(error).split())[:120].rstrip(".")
        message = f"{model_id} is not in the cache, and the hub does not answer: {reason}."
        raise NeedsNetwork(message, hint="If you mean a folder: there is none of this name here.") from None
