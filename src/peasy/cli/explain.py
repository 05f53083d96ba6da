"""`peasy explain`: attention step by step, with every number."""

from typing import Annotated, Literal

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags, Switch, TextArg


def explain(
    source: TextArg,
    *,
    query: str | None = None,
    cell: str | None = None,
    symbolic: Switch = False,
    decimals: int = 4,
    causal: bool | None = None,
    scoring: Literal["dot", "cosine", "scaled-dot"] | None = None,
    normalise: Annotated[Literal["softmax", "sum", "none"] | None, Parameter(alias="--normalize")] = None,
    heads: int | None = None,
    contributions: Switch = False,
    flags: Flags = Flags(),
) -> CommandOutput:
    """Calculate every step of attention for an example, a file or a sentence.

    For example:

        peasy explain i-love-ai
        peasy explain "The pizza came out of the oven" --causal --out pizza.html
        peasy explain i-love-ai --query AI
        peasy explain i-love-ai --cell weights,I,love

    Args:
        source: Name from peasy examples, .toml or .json file, or a sentence of two words or more; - reads stdin.
        query: Explain the attention of one word, by name or by position from 0.
        cell: Show the full arithmetic of one number: step,row,column, by position from 0 or by name.
        symbolic: Show symbols instead of numbers, such as 0.4*v_0 + 0.6*v_1.
        decimals: Number of decimals.
        causal: Use a causal mask.
        scoring: Scoring function of query and key.
        normalise: How scores become attention weights.
        heads: Number of attention heads.
        contributions: Also show the contribution of each key: weight times value.
    """
    from peasy.commands.explain import explain as command

    result = command(
        source, query=query, cell=cell, symbolic=symbolic, decimals=decimals, causal=causal, scoring=scoring,
        normalise=normalise, heads=heads, contributions=contributions,
    )  # fmt: skip
    return CommandOutput(
        result,
        suggestions=_suggestions(source, result.worked.names, result.worked.tokens[0], query or cell or symbolic),
    )


def _suggestions(source: str, steps: tuple[str, ...], token: str, narrowed: object) -> list[str]:
    """Return suggested commands, only if they need no quoting."""
    if narrowed or not all(name.replace("-", "").isalnum() for name in (source, token)):
        return []
    last = steps[-1]
    has_weights = any(step.endswith("weights") for step in steps)
    return [f"peasy explain {source} --cell {last},0,0"] + (
        [f"peasy explain {source} --query {token}"] if has_weights else []
    )
