"""`peasy explain`: attention step by step, with every number."""

from typing import Annotated

from cyclopts import Parameter

from peasy.cli.command import CommandOutput, Flags, TextArg
from peasy.cli.derive import Call, derive
from peasy.commands import explain as commands
from peasy.worked.example import NormalisationName


@derive(commands.explain, hide=("normalize",))
def explain(
    call: Call[commands.ExplainResult],
    source: TextArg,
    *,
    query: str | None = None,
    cell: str | None = None,
    causal: bool | None = None,
    normalise: Annotated[NormalisationName | None, Parameter(alias="--normalize")] = None,
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
        causal: Use a causal mask.
        normalise: How scores become attention weights.
    """
    result = call(source, query=query, cell=cell, causal=causal, normalise=normalise)
    narrowed = query or cell or call.arguments.get("symbolic")
    return CommandOutput(
        result, suggestions=_suggestions(source, result.worked.names, result.worked.tokens[0], narrowed)
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
