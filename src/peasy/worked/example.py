"""Worked example as a typed dataclass: tokens, given matrices, settings of the formula, and hand-written tables.

An example may give inputs `x` (with or without projection matrices), or queries, keys and values, or only
attention weights; `solve` computes every step that follows from them. Any sentence makes an example, too: each word
gets a deterministic vector hashed from its letters.
"""

import dataclasses
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from annotated_types import Ge

from peasy import config
from peasy.errors import InvalidInput, NotFound, did_you_mean
from peasy.parameters import BoundedSettings, Record
from peasy.worked.label import check_encodable

Vector = tuple[float, ...]
MatrixRows = tuple[Vector, ...]
ScoringName = Literal["dot", "cosine", "scaled-dot"]
NormalisationName = Literal["softmax", "sum", "none"]
Window = int | tuple[int, int]

_BY_QUERY, _BY_KEY = ("x", "q", "weights", "mask", "bias"), ("source_x", "k", "v")
_MATRICES = (*_BY_QUERY, *_BY_KEY, "w_q", "w_k", "w_v", "w_o")
"""Fields of an example that hold a matrix: with a row for each query or key, and the projections."""

_MAX_SCORES = 1_000_000
"""Maximum number of scores of an example (1,000 queries by 1,000 keys)."""

_SCALAR_SETTINGS = ("causal", "window", "scoring", "scale", "normalise", "heads")
"""Settings that are a single value."""

_VECTOR_SIZE = 4
"""Dimensions per word: few enough to follow by hand, and divisible by two or four heads."""

VECTOR_NOTE = (
    "The vectors are hashed from the letters of the words, so the same word always gets the same vector. "
    "They are not those of a trained model and carry no meaning: words that are similar here are similar by chance."
)

_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Characters of Chinese and Japanese: in a text without spaces each is a word of its own."""

_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]+")
_WORD_OR_CHARACTER = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:['’-][^\W{_UNSPACED}]+)*|[^\w\s]+")


class AdditiveScoringConfig(Record):
    """Additive (Bahdanau) scoring: v · tanh(q W + k U)."""

    w: MatrixRows
    u: MatrixRows
    v: Vector
    kind: ClassVar[str] = "additive"

    def __post_init__(self) -> None:
        _check_rectangular("w", self.w)
        _check_rectangular("u", self.u)
        if not len(self.w[0]) == len(self.u[0]) == len(self.v):
            raise InvalidInput("w, u and v must share one hidden width.", hint="Give w and u as many columns as v has.")


class WrittenTable(Record):
    """Hand-written table to be checked.

    `table` is `X`, `W_Q`, `Q`, `K`, `V`, `scores`, `scaled`, `weights`, `context` ...; cells are text, so that the
    author's decimals are kept. There may be fewer rows than tokens (then `rows` names them), and rows of a wrong
    length, blank or symbolic ones. `description` is the document's own caption of the table.
    """

    table: str
    cells: tuple[tuple[str | int | float, ...], ...]
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    description: str = ""


class ExampleVariant(Record):
    """Settings that override those of an example; None keeps the example's value."""

    name: str
    scoring: ScoringName | None = None
    scale: float | None = None
    normalise: NormalisationName | None = None
    mask: tuple[tuple[bool, ...], ...] | None = None
    causal: bool | None = None
    window: Window | None = None


class UpdateConfig(BoundedSettings):
    """Training of an example: the node `loss`, and the optimizer of one update; with none, only gradients.

    `parameters` are the updated nodes, all given ones if empty. `step` counts updates from 1; moments of the steps
    before it are given as `old_m_w` and `old_v_w`, else zero.
    """

    loss: str = "loss"
    optimizer: Literal["none", "sgd", "momentum", "adamw"] = "none"
    lr: float = 0.1
    momentum: float = 0.9
    beta_1: float = 0.9
    beta_2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    step: Annotated[int, Ge(1)] = 1
    parameters: tuple[str, ...] = ()


class Example(Record):
    """One example. `tokens` label the rows (queries); `source_tokens` label the keys in cross-attention.

    An example of attention gives matrices and settings; any other computation is described by `steps`, lines such as
    `hidden = "project(x, w_1, b_1)"` that use matrices under `given` and the results of lines before. `train` adds
    gradients and one update; `name` is that in the library. `vocabulary` labels logits; `targets` are its words, one
    per token, "" = not counted.

    `features` label the columns of `x`; `row_dim` and `col_dim` are the axes of `x` for tokens and features.
    With none of `w_q`, `w_k`, `w_v`, the inputs are used as queries, keys and values; with some of them, only
    their products exist. `last_step` is the last step to show, `plot_features` two features to plot, `project` two
    words, the first projected onto the second. `sinks` has one number for each head.
    """

    title: str
    tokens: tuple[str, ...] = ()
    source: str = ""
    description: str = ""
    note: str = ""
    features: tuple[str, ...] = ()
    x: MatrixRows | None = None
    row_dim: int = 0
    col_dim: int = 1
    source_tokens: tuple[str, ...] = ()
    source_x: MatrixRows | None = None
    w_q: MatrixRows | None = None
    w_k: MatrixRows | None = None
    w_v: MatrixRows | None = None
    w_o: MatrixRows | None = None
    b_q: Vector | None = None
    b_k: Vector | None = None
    b_v: Vector | None = None
    b_o: Vector | None = None
    q: MatrixRows | None = None
    k: MatrixRows | None = None
    v: MatrixRows | None = None
    weights: MatrixRows | None = None
    heads: int = 1
    scoring: ScoringName | AdditiveScoringConfig = "scaled-dot"
    scale: float | None = None
    mask: tuple[tuple[bool, ...], ...] | None = None
    bias: tuple[tuple[float | Literal["-inf"], ...], ...] | None = None
    causal: bool = False
    window: Window | None = None
    normalise: NormalisationName = "softmax"
    softcap: float | None = None
    sinks: Vector | None = None
    positions: Literal["none", "rotary", "alibi"] = "none"
    last_step: str = ""
    plot_features: tuple[str, ...] = ()
    project: tuple[str, ...] = ()
    variants: tuple[ExampleVariant, ...] = ()
    written: tuple[WrittenTable, ...] = ()
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    steps: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    train: UpdateConfig | None = None
    name: str = ""
    vocabulary: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for message, hint in _faults(self):
            raise InvalidInput(message, hint=hint or None)

    @property
    def keys(self) -> tuple[str, ...]:
        """Labels of the keys: the source tokens in cross-attention, else the tokens."""
        return self.source_tokens or self.tokens

    @property
    def rows(self) -> MatrixRows | None:
        """`x` with one row per token, transposed if row_dim is 1."""
        return self.x if self.x is None or self.row_dim == 0 else tuple(zip(*self.x, strict=True))

    @property
    def settings(self) -> tuple[str, ...]:
        """Non-default settings as lines `name: value`, which `peasy check` can read back."""
        if self.steps:
            return (f"example: {self.name}",) if self.name else ()
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        changed = {name: getattr(self, name) for name in _SCALAR_SETTINGS if getattr(self, name) != defaults[name]}
        return tuple(
            f"{name}: {str(value).lower()}" for name, value in changed.items() if isinstance(value, int | float | str)
        )

    @property
    def given_nodes(self) -> dict[str, MatrixRows]:
        """Matrices under `given` by dotted path; a vector or a number is one row."""
        return dict(_flatten_given(self.given, ""))

    def with_variant(self, variant: ExampleVariant) -> "Example":
        """Return this example with the settings of one of its variants."""
        changes = {name: value for name, value in vars(variant).items() if name != "name" and value is not None}
        return dataclasses.replace(self, variants=(), **changes)


def check_size(example: Example) -> None:
    """Raise if the example has more than _MAX_SCORES scores, before anything is computed."""
    scores = len(example.tokens) * len(example.keys) * example.heads
    if scores > _MAX_SCORES:
        raise InvalidInput(
            f"{len(example.tokens):,} queries on {len(example.keys):,} keys make {scores:,} scores; "
            f"the maximum is {_MAX_SCORES:,}.",
            hint="Use a shorter example: up to 1,000 tokens with one head.",
        )


def read_example(source: str | Path | Mapping[str, object]) -> Example:
    """Read an example from a .toml or .json file, or from plain data (lists or arrays).

    The title defaults to the file name, or to the first tokens.

    >>> read_example({"tokens": ["a", "b"], "x": [[1, 0], [0, 1]]}).title
    'a b'
    """
    if isinstance(source, Mapping):
        tokens = source.get("tokens")
        title = " ".join(map(str, tokens[:6])) if isinstance(tokens, list | tuple) else ""
        return config.read(Example, {"title": title} | _as_lists(source))
    path = Path(source)
    data = config.load(path)
    if not data:
        raise InvalidInput(f"{path.name} is empty.", hint='An example starts with tokens = ["I", "love", "AI"].')
    return config.read(Example, _as_lists({"title": path.stem} | data), where=path.name)


def example_names() -> tuple[str, ...]:
    """Return the names of the library's examples in alphabetical order."""
    return tuple(sorted(_all_library_files()))


def load_example(name: str) -> Example:
    """Load an example of the library.

    >>> load_example("i-love-ai").tokens
    ('I', 'love', 'AI')
    """
    paths = _all_library_files()
    if name not in paths:
        near = did_you_mean(name, paths)
        raise NotFound(f'There is no example "{name}".', hint=f"{near + ' ' if near else ''}See all: peasy examples")
    return dataclasses.replace(read_example(paths[name]), name=name)


def _all_library_files() -> dict[str, Path]:
    return library_files() | library_files("transformer")


def library_files(*subfolders: str) -> dict[str, Path]:
    """Return the files of the library, or of a folder in it, by name in alphabetical order."""
    folder = Path(str(files("peasy.worked").joinpath("library", *subfolders)))
    return {path.stem: path for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem)}


def sentence_example(text: str) -> Example:
    """Return the sentence as an example without trainable weights.

    >>> sentence_example("easy peasy").x == sentence_example("Easy, peasy").x[::2]
    True
    """
    tokens = split_words(text)
    if len(tokens) < 2:
        raise InvalidInput("A sentence needs two words or more.", hint='For example: peasy explain "I love AI"')
    x = tuple(word_vector(token) for token in tokens)
    return Example(title=" ".join(text.split()), tokens=tokens, x=x, note=VECTOR_NOTE)


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into words and punctuation marks.

    >>> split_words("My phone broke, great")
    ('My', 'phone', 'broke', ',', 'great')
    >>> split_words("我爱AI"), split_words("我爱 AI")
    (('我', '爱', 'AI'), ('我爱', 'AI'))
    """
    pattern = _WORD if len(text.split()) > 1 else _WORD_OR_CHARACTER
    return tuple(pattern.findall(text))


def word_vector(word: str) -> tuple[float, ...]:
    """Return the vector of a word, in tenths from -1 to 1; case and Unicode normalisation do not matter.

    >>> word_vector("pizza") == word_vector("Pizza")
    True
    """
    letters = unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())
    digest = hashlib.sha256(letters.encode("utf-8", "surrogatepass")).digest()
    return tuple((int.from_bytes(digest[4 * i : 4 * i + 4], "big") % 21 - 10) / 10 for i in range(_VECTOR_SIZE))


def _as_lists(data: object) -> Any:
    """Convert arrays to nested lists, and -inf (allowed only in a bias) to the string "-inf"."""
    if isinstance(data, Mapping):
        return {key: _as_lists(value) for key, value in data.items()}
    if hasattr(data, "tolist"):
        data = data.tolist()
    if isinstance(data, (list, tuple)):
        return [_as_lists(value) for value in data]
    return "-inf" if isinstance(data, float) and data == -float("inf") else data


def _flatten_given(table: Mapping[str, object], path: str) -> Iterator[tuple[str, MatrixRows]]:
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, Mapping):
            yield from _flatten_given(value, f"{name}.")
            continue
        if isinstance(value, np.ndarray):  # a model's own matrix
            yield name, cast(MatrixRows, value)  # rows of numbers as well
            continue
        rows = value if isinstance(value, list | tuple) else [value]
        rows = rows if rows and isinstance(rows[0], list | tuple) else [rows]
        matrix = config.read(MatrixRows, rows, where=f"given.{name}")
        _check_rectangular(name, matrix)
        yield name, matrix


def _check_rectangular(name: str, matrix: Sequence[Sequence[object]]) -> None:
    """Raise if a matrix is empty or its rows differ in length."""
    if not matrix or not matrix[0]:
        raise InvalidInput(f"{name} is empty.", hint="Give at least one row with one number, or leave it out.")
    for index, row in enumerate(matrix):
        if len(row) != len(matrix[0]):
            message = f"{name} has rows of different lengths: row 0 has {len(matrix[0])}, row {index} has {len(row)}."
            raise InvalidInput(message, hint="Give every row the same length.")


def _faults(example: Example) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the tokens, lengths and numbers of an example, and what to do about it."""
    if {example.row_dim, example.col_dim} != {0, 1}:
        yield (f"row_dim is {example.row_dim} and col_dim is {example.col_dim}: one must be 0 and the other 1.",
               "row_dim is the axis of x for tokens, col_dim the axis for features.")  # fmt: skip
    if not example.tokens and not example.steps:
        yield "tokens is empty.", 'Give a token for every row: tokens = ["I", "love", "AI"].'
    for name in ("tokens", "source_tokens", "features", "vocabulary", "targets"):
        for index, token in enumerate(getattr(example, name)):
            check_encodable(f"{name}[{index}]", token)
    if example.source_x is not None and not example.source_tokens:
        yield "source_x is given without source_tokens.", "Give one source token for each row."
    matrices = {name: getattr(example, name) for name in _MATRICES if getattr(example, name) is not None}
    for name, matrix in matrices.items():
        _check_rectangular(name, matrix)
    for name, matrix in (matrices | ({"x": example.rows} if example.rows else {})).items():
        tokens, counted = (example.tokens, "tokens") if name in _BY_QUERY else (example.keys, "keys")
        if name in (*_BY_QUERY, *_BY_KEY) and len(matrix) != len(tokens):
            yield f"{name} has {len(matrix)} rows for {len(tokens)} {counted}.", "Give one row for each token."
        if name in ("weights", "mask", "bias") and len(matrix[0]) != len(example.keys):
            yield f"{name} has {len(matrix[0])} columns for {len(example.keys)} keys.", "One column per key."
    if example.features and example.rows and len(example.features) != len(example.rows[0]):
        yield f"There are {len(example.features)} features for {len(example.rows[0])} columns of x.", ""
    for letter in "qkvo":
        bias, weights = getattr(example, f"b_{letter}"), matrices.get(f"w_{letter}")
        if bias is not None and weights is None and letter not in matrices and not example.written:
            yield f"b_{letter} is given without w_{letter}.", f"Give w_{letter}, or leave it out."
        elif bias is not None and weights is not None and len(bias) != len(weights[0]):
            counts = f"{len(bias)} numbers for {len(weights[0])} columns of w_{letter}"
            yield f"b_{letter} has {counts}.", "Give one number for each column."
    if example.sinks is not None and len(example.sinks) != example.heads:
        yield f"sinks has {len(example.sinks)} numbers for {example.heads} heads.", "One for each head."
    if example.heads < 1:
        yield f"heads should be 1 or more, not {example.heads}.", ""
