"""Models of the Hugging Face hub: what the cache holds, and what may be fetched after asking.

Only JSON, safetensors and sentencepiece files are ever fetched: nothing that could run.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from peasy.checkpoint.memory import show_bytes
from peasy.errors import NeedsNetwork, NotFound, PeasyError, UsageError

WANTED = ("*.json", "*.safetensors", "*.spm", "spiece.model", "vocab.txt", "merges.txt", "1_Pooling/config.json")
WITHOUT_OWNER = frozenset(
    [
        "bert-base-cased", "bert-base-uncased", "bert-large-uncased", "distilgpt2", "distilroberta-base", "gpt2",
        "gpt2-large", "gpt2-medium", "gpt2-xl", "roberta-base", "roberta-large", "t5-base", "t5-large", "t5-small",
    ]
)  # fmt: skip
"""Ids of the hub's first days, without an owner. Any other word without a slash is taken as a name at home."""

_ID = re.compile(r"(?!.*(?:--|\.\.))[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")

Ask = Callable[[str], bool]
"""Asked before a download, with a sentence that says what and how much."""


def is_id(name: str) -> bool:
    """Whether a word can be a hub id.

    >>> is_id("openai-community/gpt2"), is_id("gpt2"), is_id("stories"), is_id("../x")
    (True, True, False, False)
    """
    return bool(_ID.fullmatch(name)) and ("/" in name or name in WITHOUT_OWNER)


def cache() -> Path:
    """The folder in which `huggingface_hub` keeps what it fetched."""
    if chosen := os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE"):
        return Path(chosen).expanduser()
    at_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or at_home).expanduser() / "hub"


def cached(id: str) -> Path | None:
    """The folder of a model in the cache, if its weights are there."""
    model = cache() / ("models--" + id.replace("/", "--"))
    try:
        snapshot = model / "snapshots" / (model / "refs" / "main").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if snapshot.parent != model / "snapshots" or not (snapshot / "config.json").is_file():
        return None
    return snapshot if any(snapshot.glob("*.safetensors")) else None


def all_cached() -> dict[str, Path]:
    """Every model of the cache that has weights, by id."""
    return dict(_all_cached())


def fetch(id: str, ask: Ask, *, offline: bool = False) -> Path:
    """The folder of a hub model: from the cache, else from the network after asking."""
    if (found := cached(id)) is not None:
        return found
    if offline or os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        raise NeedsNetwork(f"{id} is not in the cache, and peasy is offline.", hint="See what is here: peasy models")
    size = _size(id)
    if not ask(f"Download {id} from the Hugging Face hub ({show_bytes(size)})?"):
        raise UsageError(f"{id} was not downloaded.", hint="Say yes beforehand by --yes.")
    return _download(id)


def _all_cached() -> Iterator[tuple[str, Path]]:
    for folder in sorted(cache().glob("models--*")):
        id = folder.name.removeprefix("models--").replace("--", "/")
        if (found := cached(id)) is not None:
            yield id, found


def _size(id: str) -> int:
    from fnmatch import fnmatch

    from huggingface_hub import HfApi

    files = _online(id, lambda: HfApi().model_info(id, files_metadata=True, timeout=10).siblings) or []
    wanted = [file for file in files if any(fnmatch(file.rfilename, pattern) for pattern in WANTED)]
    if not any(file.rfilename.endswith(".safetensors") for file in wanted):
        raise NotFound(
            f"{id} has no safetensors weights.", hint="Choose a model that has them: peasy reads no pickles."
        )
    return sum(file.size or 0 for file in wanted)


def _download(id: str) -> Path:
    from huggingface_hub import snapshot_download

    return Path(_online(id, lambda: snapshot_download(id, allow_patterns=list(WANTED), cache_dir=cache())))


def _online(id: str, act: Callable[[], Any]) -> Any:
    from huggingface_hub import errors

    try:
        return act()
    except PeasyError:
        raise
    except errors.GatedRepoError:
        raise NotFound(f"{id} is only given out after its terms are accepted on the hub.") from None
    except errors.RepositoryNotFoundError:
        raise NotFound(f"The hub has no model {id}, or keeps it private.") from None
    except (OSError, getattr(errors, "HTTPError", OSError), errors.OfflineModeIsEnabled) as error:
        said = " ".join(str(error).split())[:120].rstrip(".")
        raise NeedsNetwork(f"{id} is not in the cache, and the hub does not answer: {said}.") from None
