"""Dependence test for modules with unknown weight names: which input tokens change which outputs."""

from collections.abc import Callable, Sequence

import numpy as np

from peasy.errors import InvalidInput
from peasy.verification.implementation import layout as sizes
from peasy.verification.implementation.layout import FLAT_LAYOUTS, SeededInputs, TensorLayout
from peasy.verification.implementation.mistake import DROPOUT_MISTAKE, MISTAKES, Report
from peasy.verification.implementation.target import Arg, Target
from peasy.verification.implementation.variant import Array

_MISTAKE_BY_NAME = {mistake.name: mistake for mistake in MISTAKES}
_SEQ_LEN = sizes.NUM_QUERIES


def check_dependence(report: Report, target: Target, seeded: SeededInputs, widths: Sequence[int]) -> None:
    """Check determinism, independence of sequences in a batch, and the attention pattern, for one of these `widths`."""
    runner = next((runner for width in widths if (runner := _find_runner(report, target, seeded, width))), None)
    if runner is None:
        raise InvalidInput(
            f"{report.binding.summary()} did not work with one input of shape (batch, time, width).",
            hint=f'Give the call: --call "{report.binding.name}({sizes.D_MODEL}, {sizes.NUM_HEADS})(x)"',
        )
    run, layout, x = runner
    first, second = run(x), run(x)
    report.checks.append("the same input twice")
    if not np.array_equal(first, second, equal_nan=True):
        report.add_mistakes([DROPOUT_MISTAKE])
        return
    _check_attention_pattern(report, run, x, first, layout)


def _check_attention_pattern(
    report: Report, run: Callable[[Array], Array], x: Array, baseline: Array, layout: TensorLayout
) -> None:
    pattern = np.zeros((_SEQ_LEN, _SEQ_LEN), dtype=bool)
    independent = True
    for token in range(_SEQ_LEN):
        changed = x.copy()
        changed[0, token] += 1.0
        changes = np.abs(run(changed) - baseline).max(axis=-1) > 1e-6
        pattern[:, token] = changes[0]
        independent = independent and not changes[1:].any()
    report.checks.append("which tokens attend to which")
    if not independent:
        report.add_mistakes([_MISTAKE_BY_NAME["heads split by a wrong reshape"]])
        return
    mistake = _mistake_of_pattern(pattern)
    if mistake:
        report.add_mistakes([_MISTAKE_BY_NAME[mistake]])
    elif pattern.all():
        report.conventions.append("bidirectional")
    elif (pattern == np.tril(np.ones_like(pattern))).all():
        report.conventions.append("always causal")
    else:
        report.explained = False
        report.notes.append("The attention pattern is neither bidirectional nor causal.")


def _mistake_of_pattern(attention_pattern: Array) -> str | None:
    """Return the name of the mistake that an attention pattern `[query, key]` shows, or None."""
    ones = np.ones_like(attention_pattern)
    patterns = {
        "causal mask off by one (future)": np.tril(ones, 1),
        "causal mask off by one (self)": np.tril(ones, -1),
        "mask inverted": np.triu(ones),
    }
    names = [name for name, pattern in patterns.items() if (attention_pattern == pattern).all()]
    return names[0] if names else "mask inverted" if (attention_pattern == np.triu(ones, 1)).all() else None


def _find_runner(
    report: Report, target: Target, seeded: SeededInputs, width: int
) -> tuple[Callable[[Array], Array], TensorLayout, Array] | None:
    """Return a function from `[batch, time, width]` to the same, its layout (the first that works), and an input."""
    for axes in FLAT_LAYOUTS:
        layout = TensorLayout(axes, True)

        def run(x: Array, layout: TensorLayout = layout) -> Array:
            inputs = layout.arrange(x)
            roles: dict[str, Arg] = dict.fromkeys(("x", "query", "key", "value", "source"), inputs)
            bound = report.binding.bind({**roles, "causal": True})
            result = None if bound is None else target.call(*bound)
            if result is None or result.fault is not None:
                raise ValueError
            output = next((array for array in result.arrays.values() if array.shape[:-1] == inputs.shape[:-1]), None)
            if output is None:
                raise ValueError
            return {"tbd": output.swapaxes(0, 1), "td": output[None]}.get(layout.axes, output)

        x = seeded.array("x", layout.batch_size, _SEQ_LEN, width)
        try:
            run(x)
        except ValueError:
            continue
        return run, layout, x
    return None
