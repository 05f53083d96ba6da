"""The names of axes. Every array of peasy that a person may see is labelled with these words."""

BATCH = "batch"
HEAD = "head"
TIME = "time"
QUERY = "query"
KEY = "key"
D_MODEL = "d_model"
D_KEY = "d_key"
D_VALUE = "d_value"

LEADING: dict[int, tuple[str, ...]] = {0: (), 1: (BATCH,), 2: (BATCH, HEAD)}
"""What stands before the last two axes, by how many there are."""
