"""Random run names such as quiet-fox."""

import secrets
from collections.abc import Container

ADJECTIVES = (
    "amber", "brave", "bright", "calm", "clear", "clever", "cosy", "crisp", "early", "fair", "gentle", "glad", "golden",
    "green", "happy", "honest", "keen", "kind", "late", "light", "lively", "lucky", "mellow", "merry", "neat", "noble",
    "patient", "plain", "proud", "quick", "quiet", "rapid", "silver", "sleepy", "smart", "snowy", "steady", "sunny",
    "swift", "tidy", "warm", "wise",
)  # fmt: skip
ANIMALS = (
    "badger", "bear", "beaver", "bee", "bison", "crane", "crow", "deer", "dove", "duck", "eagle", "falcon", "ferret",
    "finch", "fox", "frog", "gecko", "goose", "hare", "hawk", "heron", "ibis", "lark", "lemur", "lynx", "magpie",
    "marten", "mole", "moose", "newt", "otter", "owl", "panda", "puffin", "raven", "robin", "seal", "stoat", "swan",
    "tiger", "trout", "wolf", "wren", "yak",
)  # fmt: skip


def random_run_name(taken: Container[str] = ()) -> str:
    """Return a random name that is not in `taken`.

    >>> len(random_run_name().split("-"))
    2
    """
    for _ in range(100):
        name = f"{secrets.choice(ADJECTIVES)}-{secrets.choice(ANIMALS)}"
        if name not in taken:
            return name
    return f"{name}-{secrets.token_hex(3)}"
