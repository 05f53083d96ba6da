"""`explain`: every step of attention or of any small network, with its numbers, gradients and update."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Literal, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from peasy import config, render
from peasy.commands.result import JsonDict, Result
from peasy.errors import InvalidInput, NotFound, UsageError, did_you_mean
from peasy.parameters import check_keywords, parameter_names
from peasy.views import worked as views
from peasy.views.document import Document
from peasy.worked import Example, WorkedExample, WorkedStep, example_names, load_example, read_example, solve
from peasy.worked.arithmetic import CellArithmetic, GradientChain, arithmetic
from peasy.worked.arithmetic import follow as follow_chain
from peasy.worked.example import NormalisationName, ScoringName, sentence_example, split_words
from peasy.worked.label import token_label
from peasy.worked.solver import StepKind
from peasy.worked.story import QueryDescription, describe_query
from peasy.worked.symbolic import SymbolicExample, steps_in_symbols, to_symbols
from peasy.worked.tables.notes import READERS

_MAX_DECIMALS = 15

_MAX_WORKBOOK_CELLS = 250_000
"""In a larger layer, a dot product is longer than the longest formula that a spreadsheet takes."""

_LAYER_COLUMNS = 6
"""Rows and columns that are shown of the matrices of a model's layer, so that a table fits into 80 columns."""


class ExampleMatrices(TypedDict, total=False):
    """Keywords of `explain` in place of a name or a file: the matrices of an example and their labels."""

    tokens: Sequence[str]
    features: Sequence[str]
    source_tokens: Sequence[str]
    x: ArrayLike
    source_x: ArrayLike
    w_q: ArrayLike
    w_k: ArrayLike
    w_v: ArrayLike
    w_o: ArrayLike
    b_q: ArrayLike
    b_k: ArrayLike
    b_v: ArrayLike
    b_o: ArrayLike
    q: ArrayLike
    k: ArrayLike
    v: ArrayLike
    weights: ArrayLike
    mask: ArrayLike
    bias: ArrayLike


class _StepValues:
    """Attribute of `ExplainResult`: the values of the step of that name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, result: "ExplainResult | None", owner: type) -> np.ndarray:
        if result is None or self.name not in result.worked.names:
            raise AttributeError(self.name)
        return result.worked.step(self.name).values


class ExplainResult(Result):
    """A worked example: `steps` in order; `e.weights`, `e.context` ... are arrays; `e.cell(...)` is one number."""

    worked: WorkedExample
    decimals: int = 4
    selected_query: int | None = None
    selected_cell: tuple[str, int, int] | None = None
    symbolic: bool = False
    contributions: bool = False
    chain: GradientChain | None = None
    selected_steps: tuple[WorkedStep, ...] | None = None
    fragment: bool = False

    x, source, query, key, value = (_StepValues() for _ in range(5))
    w_q, w_k, w_v, w_o = (_StepValues() for _ in range(4))
    scores, scaled, masked, weights, context, concat, output = (_StepValues() for _ in range(7))

    @property
    def tokens(self) -> tuple[str, ...]:
        """The query tokens."""
        return self.worked.tokens

    @property
    def steps(self) -> tuple[WorkedStep, ...]:
        """All steps with captions, labels and values."""
        return self.worked.steps

    @cached_property
    def variants(self) -> tuple[tuple[str, WorkedExample], ...]:
        """The example under its other settings, by name."""
        example = self.worked.example
        return tuple((variant.name, solve(example.with_variant(variant))) for variant in example.variants)

    @property
    def is_of_model(self) -> bool:
        """True if the example is a layer of a model, whose matrices are those of the model and stand in `steps`."""
        return any(isinstance(matrix, np.ndarray) for matrix in self.worked.example.given.values())

    def cell(self, step: str, row: int | str, column: int | str) -> CellArithmetic:
        """Return the full arithmetic of one cell; rows and columns by position (from 0) or by token.

        >>> explain("i-love-ai").cell("scores", "AI", "AI").texts
        ('query · key: 2·1 + 1·1 = 2 + 1 = 3',)
        """
        return arithmetic(self.worked, step, row, column, self.decimals)

    def story(self, query: int | str) -> tuple[QueryDescription, ...]:
        """Return the steps of one query in sentences, one story per head."""
        scopes = self.worked.attention_scopes
        return tuple(describe_query(self.worked, query, self.decimals, scope) for scope in scopes)

    def symbolic_form(self) -> SymbolicExample:
        """Return the example in symbols instead of numbers."""
        if self.worked.example.steps or self.selected_steps is not None:
            return steps_in_symbols(self.worked, self.selected_steps or self.steps)
        return to_symbols(self.worked, self.decimals, self.worked.attention_scopes[0])

    def document(self) -> Document:
        """The selected views (one cell, one query, symbols, a chain of gradients, some steps), or all steps."""
        return dataclasses.replace(self._document(), fragment=self.fragment)

    def save(self, path: str | Path) -> Path:
        """Write a file; its suffix picks the format. An Excel workbook (.xlsx) has live formulas."""
        if render.format_of(path) == "xlsx":
            cells = sum(values.size for values in self.worked.values.values())
            if cells > _MAX_WORKBOOK_CELLS:
                message = f"A workbook with live formulas takes at most {_MAX_WORKBOOK_CELLS:,} numbers, not {cells:,}."
                raise InvalidInput(message, hint="Choose .html, .json or .csv, or one head: --head 0.")
            return render.save(views.spreadsheet_document(self.worked, self.decimals), path)
        return super().save(path)

    def _document(self) -> Document:
        documents = [] if self.chain is None else [views.chain_document(self.worked, self.chain, self.decimals)]
        if self.selected_cell is not None:
            documents.append(views.cell_document(self.worked, self.cell(*self.selected_cell), self.decimals))
        if self.selected_query is not None:
            page = views.story_document(self.worked, self.story(self.selected_query), self.decimals)
            shares = views.contribution_parts(self.worked, self.selected_query) if self.contributions else ()
            documents.append(dataclasses.replace(page, parts=(*page.parts, *shares)))
        if self.symbolic:
            documents.append(views.symbolic_document(self.worked, self.symbolic_form(), self.decimals))
        if not documents:
            return views.worked_document(
                self.worked, self.variants, self.decimals, self.contributions, self.selected_steps
            )  # fmt: skip
        return Document(documents[0].title, tuple(part for page in documents for part in page.parts), self.decimals)

    def data(self) -> JsonDict:
        """`tokens`, `steps`, the `example` itself, and the selected views; a masked score is null."""
        example = self.worked.example
        data: JsonDict = {
            "title": example.title,
            "tokens": list(self.tokens),
            "keys": list(self.worked.keys),
            "source": example.source,
            "note": example.note,
            "steps": [_step_data(step) for step in self.selected_steps or self.steps],
            "example": config.to_plain(dataclasses.replace(example, given={}) if self.is_of_model else example),
        }
        if self.variants:
            variants = ((name, [_step_data(step) for step in worked.steps]) for name, worked in self.variants)
            data["variants"] = [{"name": name, "steps": steps} for name, steps in variants]
        if self.selected_query is not None:
            data["story"] = [dataclasses.asdict(story) for story in self.story(self.selected_query)]
        if self.selected_cell is not None:
            cell = self.cell(*self.selected_cell)
            position = {"step": cell.step, "row": cell.row, "column": cell.column, "title": cell.title}
            value = cell.value if np.isfinite(cell.value) else None
            data["cell"] = position | {"lines": list(cell.texts), "value": value}
        if self.symbolic:
            data["symbolic"] = dataclasses.asdict(self.symbolic_form())
        if self.contributions:
            contributions: list[JsonDict] = []
            data["contributions"] = contributions
            for scope in self.worked.attention_scopes:
                weights, values = (self.worked.find_values(step, scope) for step in ("weights", "value"))
                if weights is not None and values is not None:
                    products = weights[:, :, None] * values[None, :, :]
                    contributions.append({"scope": scope, "values": products.tolist()})
        if self.chain is not None:
            plain = {key: value for key, value in vars(self.chain).items() if key != "steps"}
            data["chain"] = plain | {
                "title": self.chain.title,
                "steps": [_step_data(step) for step in self.chain.steps],
            }
        return data

    def __getattr__(self, name: str) -> np.ndarray:  # steps of one head: getattr(result, "head-1.query")
        if "worked" in self.__dict__ and name in self.worked.names:
            return self.worked.step(name).values
        raise AttributeError(f"There is no step or attribute {name!r} here.")

    def __repr__(self) -> str:
        return f"ExplainResult({self.worked.example.title!r}: {', '.join(self.worked.names)})"


def explain(
    source: str | Path | Example | Mapping[str, object] | None = None,
    *,
    query: int | str | None = None,
    cell: str | tuple[str, int | str, int | str] | None = None,
    symbolic: bool = False,
    decimals: int = 4,
    causal: bool | None = None,
    scoring: ScoringName | None = None,
    normalise: NormalisationName | None = None,
    normalize: NormalisationName | None = None,
    heads: int | None = None,
    contributions: bool = False,
    only: str = "",
    step: StepKind | None = None,
    follow: str = "",
    fragment: bool = False,
    model: str | None = None,
    layer: int = 0,
    head: int | None = None,
    stack: Literal["encoder", "decoder"] | None = None,
    max_columns: int | None = None,
    **matrices: Unpack[ExampleMatrices],
) -> ExplainResult:
    """Compute all steps of an example: a library name, a file, a sentence of two words or more, or matrices.

    Matrices are given by name: `x` with or without `w_q`, `w_k`, `w_v`, `w_o` and their biases `b_q` ..., or `q`, `k`
    and `v`, or `weights`; in cross-attention, keys and values come from `source_x`, one row for each of
    `source_tokens`. `tokens` label the rows, which are numbered without them.

    >>> explain("i-love-ai").weights[0].round(4)
    array([0.1978, 0.4011, 0.4011])
    >>> explain("easy peasy lemon squeezy").tokens
    ('easy', 'peasy', 'lemon', 'squeezy')
    >>> explain(x=[[1, 0], [0, 1]], w_q=[[1], [2]], w_k=[[1], [1]], w_v=[[2], [4]]).scores
    array([[1., 1.],
           [2., 2.]])

    Args:
        source: Name from peasy examples, .toml or .json file, or a sentence of two words or more; - reads stdin.
        query: Explain the attention of one word, by name or by position from 0.
        cell: Show the full arithmetic of one number: step,row,column, by position from 0 or by name.
        symbolic: Show symbols instead of numbers, such as 0.4*v_0 + 0.6*v_1.
        decimals: Number of decimals.
        causal: Use a causal mask.
        scoring: Scoring function of query and key.
        normalise: How scores become attention weights.
        normalize: The same, in American spelling.
        heads: Number of attention heads.
        contributions: Also show the contribution of each key: weight times value.
        only: Show only these steps, by name or parts of it: attention.weights.
        step: Show only the forward pass, the gradients or the update of one training step.
        follow: Follow the chain rule from the loss to one number: "d loss / d w_q[0,1]".
        fragment: Write LaTeX without a preamble, for slides.
        model: Explain a layer of this model for the text, with the model's own numbers.
        layer: Layer of the model, from 0.
        head: Only the attention of this head of the layer, from 0.
        stack: Encoder or decoder of a translator; the decoder unless given.
        max_columns: Show at most this many numbered rows and columns of each table; of a model's layer 6.
    """
    if isinstance(decimals, bool) or not 0 <= decimals <= _MAX_DECIMALS:
        raise UsageError(f"decimals should be from 0 to {_MAX_DECIMALS}, not {decimals}.")
    if normalise is not None and normalize is not None:
        raise UsageError("normalise and normalize are the same setting.", hint="Give one of them.")
    settings = {"causal": causal, "scoring": scoring, "normalise": normalise or normalize, "heads": heads}
    changes = {name: value for name, value in settings.items() if value is not None}
    if model is not None:
        from peasy.commands.model_example import model_example  # with torch, which all other examples do without

        source = model_example(model, str(source or ""), layer, head, stack)
        max_columns = _LAYER_COLUMNS if max_columns is None and head is None else max_columns
    example = _resolve_example(source) if source is not None else _given_example(matrices)
    if source is not None and matrices:
        raise UsageError("explain takes an example or matrices, not both.", hint=f"Leave out {', '.join(matrices)}.")
    if max_columns is not None and max_columns < 1:
        raise UsageError(f"max_columns should be 1 or more, not {max_columns}.", hint="Leave it out to see all.")
    worked = dataclasses.replace(solve(_with_settings(example, changes)), max_columns=max_columns)
    position = None if query is None else describe_query(worked, query, scope=worked.attention_scopes[0]).position
    selected_cell = None if cell is None else _resolve_cell(worked, cell)
    chain = follow_chain(worked, follow) if follow else None
    steps = worked.select(only, step) if only or step else None
    return ExplainResult(
        worked, decimals, position, selected_cell, symbolic, contributions, chain, steps, fragment
    )  # fmt: skip


def _given_example(matrices: ExampleMatrices) -> Example:
    """Return the example of matrices given by name; rows without tokens are numbered from 0."""
    check_keywords("explain", matrices, (*parameter_names(explain)[:-1], *ExampleMatrices.__annotations__))
    data: JsonDict = dict(matrices)
    for tokens, names in (("tokens", ("x", "q", "weights")), ("source_tokens", ("source_x",))):
        arrays = [data[name] for name in names if hasattr(data.get(name), "__len__")]
        given = [array for array in arrays if getattr(array, "ndim", 1)]
        data |= {tokens: [str(index) for index in range(len(given[0]))]} if given and tokens not in data else {}
    if "tokens" not in data:
        raise UsageError("There is nothing to explain.", hint='For example: peasy.explain("I love AI"), or give x.')
    return read_example({"title": "Attention by hand"} | data)


def _resolve_example(source: str | Path | Example | Mapping[str, object]) -> Example:
    """Resolve an example: a name of the library, else a file, else a sentence."""
    if isinstance(source, Example):
        return source
    if isinstance(source, Path):
        _reject_other_files(source)
    if isinstance(source, (Path, Mapping)):
        return read_example(source)
    if source in example_names():
        return load_example(source)
    if _is_file(source):
        _reject_other_files(Path(source))
        return read_example(source)
    if len(split_words(source)) > 1 and (len(source.split()) > 1 or not source.isascii()):
        return sentence_example(source)
    if not source.strip():
        raise UsageError("There is nothing to explain.", hint='For example: peasy explain "I love AI"')
    suggestion = did_you_mean(source, example_names())
    hint = f"{suggestion or 'Give a name, a file, or a sentence of two words or more.'} See all: peasy examples"
    raise NotFound(f'There is no example "{token_label(source)}".', hint=hint)


def _is_file(text: str) -> bool:
    if len(text) > 1000 or "\0" in text:
        return False
    with suppress(OSError):
        return Path(text).is_file() or (Path(text).suffix in (".toml", ".json") and len(text.split()) == 1)
    return False


def _reject_other_files(path: Path) -> None:
    """Raise for files that are not examples, and name the command that takes them."""
    if path.suffix == ".txt":
        hint = f"To explain the words in it: peasy explain - < {path}"
    elif path.suffix in READERS:
        hint = f"To check the tables in it: peasy check {path}"
    else:
        return
    raise InvalidInput(f"{path.name} is not an example: examples are .toml or .json files.", hint=hint)


def _with_settings(example: Example, changes: Mapping[str, object]) -> Example:
    """Return the example with other settings, without its variants, which have their own settings."""
    if not changes:
        return example
    if example.steps:
        raise InvalidInput(f"{' and '.join(changes)} cannot change this example.", hint="Its [steps] have settings.")
    without_effect = [name for name in changes if name != "causal"] if example.weights is not None else []
    if without_effect:
        raise InvalidInput(f"The weights are given here, so {' and '.join(without_effect)} cannot change them.")
    return config.read(Example, config.to_plain(dataclasses.replace(example, variants=(), written=())) | changes)


def _resolve_cell(worked: WorkedExample, cell: str | tuple[str, int | str, int | str]) -> tuple[str, int, int]:
    parts = cell.split(",", 2) if isinstance(cell, str) else list(cell)
    if len(parts) != 3:
        shown = token_label(str(cell))
        raise UsageError(f'A cell is step,row,column, not "{shown}".', hint="For example: --cell weights,0,1")
    step, row, column = (part.strip() if isinstance(part, str) else part for part in parts)
    resolved = arithmetic(worked, str(step), row, column)
    return resolved.step, resolved.row, resolved.column


def _step_data(step: WorkedStep) -> JsonDict:
    return {
        "name": step.name, "tex": step.tex, "description": step.description,
        "rows": list(step.rows), "columns": list(step.columns), "values": step.rows_or_masked,
        "row_axis": step.row_axis, "column_axis": step.column_axis,
    }  # fmt: skip
