"""Scale of the scores: right, a known mistake, learned, or published otherwise."""

import linecache
import re

from peasy.verification.implementation.core import is_activation
from peasy.verification.implementation.judgement import (
    Context,
    Judgement,
    close_to,
    created_with,
    heads_of,
    line_that_sets,
    parameters_around,
    place_of,
    statement,
)
from peasy.verification.implementation.lineage import number_of
from peasy.verification.implementation.names import role_of
from peasy.verification.implementation.reading import Reading
from peasy.verification.implementation.trace import PARAMETER, Op, Place

_FACTORS = ("mul", "div")
SCALES = {"no scale", "scale multiplied", "scaled twice", "floor division", "power before division"}
SCALES |= {f"scale by {number}" for number in ("d_k", "model width", "number of tokens", "number of heads")}
"""Names of mistakes of which scores can have only one."""


def judge_scale(reading: Reading, context: Context, found: Judgement) -> None:
    """Judge the number by which the scores are multiplied before the softmax."""
    core, d_key = reading.core, reading.d_key
    op = _scale_op(reading)
    place = place_of(op or core.scores)
    normed = "norm" in reading.query_line.kinds and "norm" in reading.key_line.kinds
    learned = reading.query_line.learned_factor or reading.key_line.learned_factor or _learned_scale(reading)
    if reading.normaliser in ("sum", "none") and reading.factor is None:
        return
    if reading.floored or reading.factor == 0:
        found.mistake("floor division", place_of(_floor_op(reading) or op))
        return
    if reading.masked_op is None:
        return
    if reading.head_factors and not learned:
        found.not_understood("Scores of different heads are multiplied by different numbers.")
    if reading.factor is None:
        _unknown_scores(reading, found)
        return
    if reading.softcap:
        found.convention(f"soft cap of {reading.softcap:.4g} on the scores")
    scale = reading.scale
    if scale is None:
        found.not_understood("Parts of the queries are scaled differently.")
        return
    if learned:
        found.convention("the scale is learned")
        return
    name = _scale_name(reading, context, scale)
    if name == "":
        return
    found.scale, found.d_key = round(scale, 5), d_key
    written = "".join(line.partition("#")[0] for line in linecache.getlines(place.file)) if place else ""
    if name == "power before division" and not re.search(r"\*\*\s*-?1(\.0?)?\s*/\s*2", written):
        name = "?"  # another number that is 2/d_k for this width alone, such as 0.25/√d_k for 64
    if name == "scale by d_k" and len(_scale_ops(reading)) > 1:
        name = "scaled twice"
    if normed or (context.free_scale and name in ("no scale", "?")) or (scale == 1 and reading.bias_learned):
        found.convention(f"the scores are multiplied by {scale:.4g}, not by 1/√d_k = {d_key**-0.5:.4g}")
    elif scaled_late(reading):
        found.mistake("scale after softmax", place_of(late_scale_op(reading)))
    elif name == "no scale" and not found.mistakes and _published_without_scale(reading):
        found.not_understood(f"{_published_without_scale(reading)} The formula has 1/√d_k = {d_key**-0.5:.4g}.")
    elif name == "scale multiplied" and context.scale_argument:
        found.not_understood("Its caller chooses the scale, by an argument whose meaning is not known here.")
    elif name == "no scale" and re.search(r"\bscale=1(\.0)?\b", statement(core.scores.place)):
        found.not_understood("The scores are not scaled: its kernel is given a scale of 1.")
    elif name == "no scale" and context.why_unscaled:
        found.not_understood(f"It does not scale, but {context.why_unscaled}.")
    elif name == "?":
        found.not_understood(f"The scores are multiplied by {scale:.4g}; the formula has 1/√d_k = {d_key**-0.5:.4g}.")
    else:
        found.mistake(name, _place_of_choice(reading, place, name))


_CHOSEN = r"(?:self\.)?\b\w*(?:scal|sqrt|temper)\w*\b(?![(.])"


def _place_of_choice(reading: Reading, place: Place | None, name: str) -> Place | None:
    """Return the line that chooses a scale: of the constructor, or of the caller that gives it to a helper."""
    ops = _scale_ops(reading)
    sides = bool(reading.query_line.scale_ops and reading.key_line.scale_ops)
    used = [{*re.findall(_CHOSEN, op.place.code)} for op in ops if op.place]
    unnamed = name == "scale multiplied" and not re.search(
        r"(\*=? *|mul_?\()(self\.)?\w*scal|scal\w* *\*", place.code if place else ""
    )
    if name == "no scale" or unnamed or (name == "scaled twice" and not (sides and set.intersection(*used))):
        return place
    made = line_that_sets(place, _CHOSEN, r".*[\d.)]")
    if made is not None or place is None:
        return made or place
    callers = ops[-1].callers if ops else ()
    given = [
        each for each in re.findall(r"/\s*(?:[\w.]*\()?(self\.\w+|[a-z_]\w*)\b(?![.\[(])", place.code)
        if role_of(each.removeprefix("self."), True) in ("scale", "temperature", "d_head", "")
    ]  # fmt: skip
    if callers and {*given} & {*parameters_around(place)}:
        return callers[0]
    return created_with(place, given, [each.file for each in callers]) or place


def _published_without_scale(reading: Reading) -> str:
    """Return which published attention has no scale, if this looks like it; else ""."""
    core = reading.core
    if reading.bias_from_inputs:
        return "The scores are not scaled, and a term from the inputs is added, as in bottleneck Transformers."
    layers = [op.name for line in reading.lines.values() for op in line.projections]
    heads = heads_of(reading)
    if layers and all("conv" in name for name in layers) and (heads is None or heads.shape[1] == 1):
        return "The scores of this feature map are not scaled, as in self-attention GANs and non-local networks."
    same = close_to(core.values[core.value_rows][:, 0], core.right)  # of the first query of each matrix
    if same and not reading.key_line.projections and not reading.value_line.projections:
        return "Keys and values are one array and the scores are not scaled, as in Luong's attention."
    return ""


def _unknown_scores(reading: Reading, found: Judgement) -> None:
    names = [
        op.name.strip("_") for op in reading.core.path[1:] if reading.masked_op and op.index <= reading.masked_op.index
    ]
    known = ", ".join(dict.fromkeys(names)) or "none"
    found.not_understood(
        f"Between product and softmax the scores are not only scaled and masked (operations: {known})."
    )


def _scale_name(reading: Reading, context: Context, scale: float) -> str:
    """Return the name of a scale: "" = right, "?" = unknown."""
    d_key, (_, queries, keys) = reading.d_key, reading.core.shape
    heads = heads_of(reading)
    count = 1 if heads is None else heads.shape[1]
    widths = [width for width in (context.model_width, count * d_key) if width and width != d_key]
    candidates = [
        ("", d_key**-0.5), ("no scale", 1.0), ("scale by d_k", 1 / d_key), ("scale multiplied", d_key**0.5),
        *(("scale by model width", power) for width in widths for power in (width**-0.5, 1 / width)),
        *(("scale by number of tokens", power) for time in {queries, keys} for power in (time**-0.5, 1 / time)),
        ("floor division", 1 / int(d_key**0.5)), ("power before division", 2 / d_key),
        ("power before division", 0.5 / d_key), ("scale multiplied", float(d_key)),
        *(("scale multiplied", width**0.5) for width in widths),
        *(("scale by number of heads", power) for power in ((count**-0.5, 1 / count) if count > 1 else ())),
    ]  # fmt: skip
    folded = scale * reading.query_line.folded * reading.key_line.folded  # into the weights, by the call
    if abs(folded * d_key**0.5 - 1) <= 1e-3:
        return ""
    for name, value in candidates:
        if abs(scale - value) <= 1e-3 * value:
            return name
    return "?"


def _scale_ops(reading: Reading) -> list[Op]:
    """Return the multiplications and divisions by a number: on queries and keys, then on the scores; no soft cap's."""
    caps = [op.index for op in reading.core.path if op.name.rstrip("_") == "tanh"]
    of_cap = {source for index in caps for source, _ in reading.trace.ops[index].inputs}
    of_cap |= {op.index for op in reading.core.path if any(source in caps for source, _ in op.inputs)}
    on_scores = [
        op for op in reading.core.path
        if op.name.rstrip("_") in _FACTORS and op.index not in of_cap and number_of(reading.trace, op) is not None
        and (reading.masked_op is None or op.index <= reading.masked_op.index)
    ]  # fmt: skip
    return [*reading.key_line.scale_ops, *reading.query_line.scale_ops, *on_scores]


def _scale_op(reading: Reading) -> Op | None:
    """Return the last multiplication or division by a number before the softmax."""
    return next(reversed(_scale_ops(reading)), None)


def _floor_op(reading: Reading) -> Op | None:
    return next((op for op in reading.core.path if "floor" in op.name or "div" in op.name), None)


def _learned_scale(reading: Reading) -> bool:
    factors = [op for op in reading.core.path if op.name.rstrip("_") in _FACTORS]
    operands = [reading.trace.ops[source] for op in factors for source, _ in op.inputs]
    return any(root.startswith(PARAMETER) for op in operands if not is_activation(op) for root in op.roots)


def late_scale_op(reading: Reading) -> Op | None:
    """Return the first multiplication by a number after the softmax."""
    last = reading.normaliser_ops[-1].index if reading.normaliser_ops else len(reading.trace.ops)
    late = [
        op for op in reading.core.path
        if op.index > last and op.name.rstrip("_") in _FACTORS and number_of(reading.trace, op) is not None
    ]  # fmt: skip
    return late[0] if late else None


def late_factor(reading: Reading) -> float:
    """Return the number of the first multiplication after the softmax; 1 if there is none."""
    op = late_scale_op(reading)
    number = None if op is None else number_of(reading.trace, op)
    return 1.0 if number is None else number[0]


def scaled_late(reading: Reading) -> bool:
    """Return whether the weights are divided by √d_k, or by the root of the model width."""
    heads = heads_of(reading)
    widths = (reading.d_key, reading.d_key * (1 if heads is None else heads.shape[1]))
    return any(abs(late_factor(reading) - width**-0.5) < 1e-3 for width in widths)
