"""Axis names, used as labels of all displayed arrays.

Within one computation, axes of the same name have the same size.
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
"""Leading axes before those of a step, by their number."""
