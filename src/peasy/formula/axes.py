"""The names of axes. Every array of peasy that a person may see is labelled with these words.

Within one calculation an axis of one name has one size.
"""

BATCH = "batch"
HEAD = "head"
TIME = "time"
QUERY = "query"
KEY = "key"
PAIR = "pair"
D_MODEL = "d_model"
D_SOURCE = "d_source"
D_QUERY = "d_query"
D_KEY = "d_key"
D_VALUE = "d_value"
D_CONCAT = "d_concat"
D_OUTPUT = "d_output"

LEADING: dict[int, tuple[str, ...]] = {0: (), 1: (BATCH,), 2: (BATCH, HEAD)}
"""What stands before the axes of a step itself, by how many there are."""
