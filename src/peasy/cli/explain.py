"""`peasy explain`."""

from typing import Annotated, Literal

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags, Text


def explain(
    what: Text,
    *,
    query: str | None = None,
    cell: str | None = None,
    symbolic: Annotated[bool, Parameter(negative="")] = False,
    decimals: int = 4,
    causal: bool | None = None,
    scoring: Literal["dot", "cosine", "scaled-dot"] | None = None,
    normalise: Annotated[Literal["softmax", "sum", "none"] | None, Parameter(alias="--normalize")] = None,
    heads: int | None = None,
    contributions: Annotated[bool, Parameter(negative="")] = False,
    flags: Flags = Flags(),
) -> Answer:
    """Every step of attention for an example, a file or any sentence.

    For example:

        peasy explain i-love-ai
        peasy explain "The pizza came out of the oven" --causal --out pizza.html
        peasy explain i-love-ai --query AI
        peasy explain i-love-ai --cell weights,I,love

    Args:
        what: A name from peasy examples, a .toml or .json file, or a sentence of two words or more; - reads stdin.
        query: Tell the story of one word, by name or by position from 0.
        cell: The full arithmetic of one number: step,row,column, by position from 0 or by name.
        symbolic: In letters, such as 0.4*v_0 + 0.6*v_1.
        decimals: How many decimals numbers get.
        causal: Only look back.
        scoring: How well a key fits a query.
        normalise: How scores become weights.
        heads: How many heads to split the width into.
        contributions: Also what each key brings: weight times value.
    """
    from peasy.workbench.explain import explain as verb

    shown = verb(
        what, query=query, cell=cell, symbolic=symbolic, decimals=decimals, causal=causal, scoring=scoring,
        normalise=normalise, heads=heads, contributions=contributions,
    )  # fmt: skip
    return Answer(shown, next=_next(what, shown.worked.names, shown.worked.tokens[0], query or cell or symbolic))


def _next(what: str, steps: tuple[str, ...], token: str, asked: object) -> list[str]:
    """Commands worth typing now; only what can be typed as it stands."""
    if asked or not all(name.replace("-", "").isalnum() for name in (what, token)):
        return []
    last = steps[-1]
    weighs = any(step.endswith("weights") for step in steps)
    return [f"peasy explain {what} --cell {last},0,0"] + ([f"peasy explain {what} --query {token}"] if weighs else [])
