"""Analyses of a model as documents: alignment, interventions, logit lens, head scores, rollout, traces, history."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from peasy.inspection import results
from peasy.nn.module_path import ModulePath, part_name
from peasy.views import document as doc
from peasy.views.attention import attention_name, opening_notes

_SCORE_TABLES = {
    "Pattern": ("entropy", "sharpness", "distance", "position"),
    "Shares of attention": ("previous", "next", "first", "own", "same", "induction"),
}
"""Head scores in tables that fit into 80 columns."""
_MAX_PROFILES = 6
_MAX_CANDIDATES = 6
_MAX_HEADS = 12


def alignment_document(alignment: results.Alignment) -> doc.Document:
    """Document with ribbons, the same weights as a heat map, and the heads ranked by how well they align."""
    heat_map = doc.Maps(
        "Attention weights", alignment.weights[None, None], alignment.target.words, alignment.source.words,
        row_axis="translation", column_axis="source",
    )  # fmt: skip
    parts: list[doc.DocumentPart] = [alignment_links(alignment), heat_map]
    if alignment.gold:
        counted = (f"{side}: {_numbered_words(tokens)}" for side, tokens in
                   (("Source", alignment.source), ("Translation", alignment.target)))  # fmt: skip
        parts += [doc.Paragraph(alignment.errors().summary()), *(doc.Paragraph(line, "note") for line in counted)]
    if len(alignment.scores) > 1:
        scores = alignment.scores[:_MAX_HEADS]
        known = any(score.accuracy is not None for score in scores)
        columns = ("layer", "head", *(("alignment accuracy",) if known else ()), "monotonicity", "sharpness", "score")
        rows = tuple(
            (str(score.path.layer), str(score.head), *((score.accuracy,) if known else ()), score.monotonicity,
             score.sharpness, score.score)
            for score in scores
        )  # fmt: skip
        parts.append(doc.Table(columns, rows, "Heads by alignment quality"))
    parts.append(doc.capitalized_note(alignment.caveat))
    return doc.Document(doc.short_title(alignment.source.text, alignment.model), tuple(parts))


def _numbered_words(tokens: results.Tokens) -> str:
    """Words with the numbers by which gold links count them."""
    pairs = zip(tokens.words, tokens.word_numbers or range(len(tokens.words)), strict=True)
    return " ".join(f"{number} {word}" for word, number in pairs if number is not None)


def alignment_links(alignment: results.Alignment) -> doc.Links:
    """Alignment figure: source above, translation below; the width of a ribbon is its weight."""
    where = f"{alignment.path.stack} layer {alignment.path.layer}, head {alignment.head}"
    known = "Dashed: reference alignment." if alignment.gold else ""
    return doc.Links(
        f"Alignment ({where})", alignment.source.words, alignment.target.words, alignment.weights.T, "source",
        "translation", description=f"The width of a ribbon is its attention weight. {known}".strip(), ribbons=True,
        min_weight=0.05, gold=alignment.gold,
    )  # fmt: skip


def effect_document(effect: results.Effect) -> doc.Document:
    """Document with the values before and after the intervention side by side."""
    before, after = ({token.id: token.probability for token in side} for side in (effect.before, effect.after))
    candidates: list[tuple[doc.Cell, ...]] = []
    for token_id, piece in {token.id: token.piece for token in (*effect.before, *effect.after)}.items():
        was, now = before.get(token_id), after.get(token_id)
        candidates.append((piece, was, now, None if was is None or now is None else now - was))
    parts: list[doc.DocumentPart] = [
        *opening_notes(effect.interventions),
        doc.Table(("next token", "before", "after", "change"), tuple(candidates)),
    ]
    comparisons = (("word", effect.tracked_words, "Tracked words"), ("metric", effect.metrics, "Metrics on data"))
    for kind, values, title in comparisons:
        rows = tuple((name, before, after, after - before) for name, before, after in values)
        parts += [doc.Table((kind, "before", "after", "change"), rows, title)] if rows else []
    summary = []
    if effect.kl_divergence is not None:
        summary.append(f"KL divergence of the next-token distributions: {effect.kl_divergence:.4f} bits.")
    if effect.max_logit_change is not None:
        summary.append(f"Largest change of a logit: {effect.max_logit_change:.4f}.")
    parts += [doc.Paragraph(" ".join(summary))] if summary else []
    return doc.Document(f"Effect of the intervention: {doc.short_title(effect.text, effect.model)}", tuple(parts))


def lens_document(lens: results.LensTable) -> doc.Document:
    """Document of the logit lens, from the last layer down to the embedding; a cell expands to its top candidates."""
    order = list(range(len(lens.layers)))[::-1]
    final = lens.final
    agreed = {(row, column) for row, index in enumerate(order[1:], 1) for column, word in enumerate(final)
              if lens.pieces[index][column][0] == word}  # fmt: skip
    about = (
        "The residual stream after each layer, decoded by the LM head. Marked: same as the final prediction. "
        "Colours: its probability, from dark (0) to bright (1)."
    )
    notes = (doc.Paragraph(note, "note") for note in lens.notes)
    parts: tuple[doc.DocumentPart, ...] = (doc.Paragraph(about), _lens_matrix(lens, order, frozenset(agreed)), *notes)
    return doc.Document(f"Logit lens: {doc.short_title(lens.tokens.text, lens.model)}", parts)


def _lens_matrix(lens: results.LensTable, order: list[int], marks: frozenset[tuple[int, int]]) -> doc.Matrix:
    """Matrix of the top prediction of each layer at each position."""
    labels = tuple(f"layer {lens.layers[index] - 1}" if lens.layers[index] else "embedding" for index in order)

    def explain(row: int, column: int) -> doc.Arithmetic:
        index = order[row]
        title = f"{labels[row]} after {lens.tokens.pieces[lens.rows[column]]}"
        candidates = zip(lens.pieces[index][column], lens.probabilities[index, column], strict=False)
        return doc.Arithmetic(title, tuple(f"{piece}  {float(probability):.4f}" for piece, probability in candidates))

    return doc.Matrix(
        "top prediction of each layer",
        tuple(tuple(lens.pieces[index][column][0] for column in range(len(lens.rows))) for index in order),
        labels,
        tuple(lens.tokens.pieces[row] for row in lens.rows),
        "output of", "after",
        shaded=True, marks=marks, explain=explain,
        shades=tuple(tuple(float(lens.probabilities[i, column, 0]) for column in range(len(lens.rows))) for i in order),
    )  # fmt: skip


def ranking_document(report: results.HeadReport, by: str = "sharpness", top: int = 30) -> doc.Document:
    """Document of the heads ranked by one score, with their distance profiles; each table fits into 80 columns."""
    ranked = report.ranked(by)[:top]
    summary = f"{report.sentences} sentences, {report.tokens:,} tokens. Ranked by {by}; scores are shares of attention."
    tables = []
    for title, names in _SCORE_TABLES.items():
        names = (by, *(name for name in names if name != by)) if by in names else names
        rows = tuple((_head_name(score), *(getattr(score, name) for name in names)) for score in ranked)
        if title == "Pattern":
            names = ("pattern", *names)
            rows = tuple((row[0], score.summary(), *row[1:]) for row, score in zip(rows, ranked, strict=True))
        tables.append(doc.Table(("head", *names), rows, title))
    tables.sort(key=lambda table: by not in table.columns)
    lines = tuple(
        (_head_name(score), tuple((float(d), float(weight)) for d, weight in enumerate(score.profile)))
        for score in ranked[:_MAX_PROFILES]
    )
    parts: list[doc.DocumentPart] = [
        doc.Paragraph(summary),
        *tables,
        doc.Curves("Attention by distance", lines, "distance in tokens", "share of weight"),
        *(doc.Paragraph(note, "note") for note in report.notes),
        doc.capitalized_note(report.caveat),
    ]
    return doc.Document(f"Attention heads of {report.model}", tuple(parts), decimals=2)


def attribution_document(attribution: results.LogitAttribution) -> doc.Document:
    """Document with the addends of a logit by layer, then the heads with the largest ones and their source tokens."""
    what = f"The logit of {attribution.token}"
    if attribution.against is not None:
        what += f" minus that of {attribution.against}"
    where = attribution.tokens.pieces[attribution.position]
    parts: list[doc.DocumentPart] = [
        *opening_notes(attribution.interventions),
        doc.Paragraph(f"{what} after {where} is {attribution.logit:.4f}: the sum of all addends below."),
        _layers_table(attribution),
    ]
    heads = sorted((c for c in attribution.components if c.head is not None), key=lambda c: -abs(c.value))[:_MAX_HEADS]
    rows = tuple((head.name, head.value, _top_sources(head, attribution.attended[head.part])) for head in heads)
    parts.append(doc.Table(("head", "addend", "largest parts by source token"), rows, "Heads with the largest addends"))
    for part in attribution.attended:
        parts.append(labelled_matrix(attribution.heads(part), f"Addends of the {part_name(part)} heads"))
    parts += [doc.Paragraph(note, "note") for note in attribution.notes]
    title = f"Logit attribution: {doc.short_title(attribution.tokens.text, attribution.model)}"
    return doc.Document(title, tuple(parts))


def _layers_table(attribution: results.LogitAttribution) -> doc.Table:
    """Table of the addends: one row per layer, one column per sublayer; the last row is the logit."""
    components = attribution.components
    known = {component.part for component in components}
    parts = [part for part in ("attention", "cross_attention", "feedforward") if part in known]
    rows: dict[str, dict[str, float]] = {}
    for component in components:
        row = component.part if component.layer is None else f"layer {component.layer}"
        column = component.part if component.part in parts else "other"
        by = rows.setdefault(row, {})
        by[column] = by.get(column, 0.0) + component.value
    rows["rounding"] = {"other": attribution.rounding}
    cells: list[tuple[doc.Cell, ...]] = [
        (name, *(by.get(part) for part in (*parts, "other")), sum(by.values())) for name, by in rows.items()
    ]
    totals = (sum(by.get(part, 0.0) for by in rows.values()) for part in (*parts, "other"))
    cells.append(("logit", *totals, attribution.logit))
    return doc.Table(("", *map(part_name, parts), "biases, other", "sum"), tuple(cells), "Addends by layer")


def _top_sources(head: results.LogitComponent, keys: results.Tokens, top: int = 4) -> str:
    assert head.sources is not None
    first, *rest = np.argsort(-np.abs(head.sources), kind="stable")[:top]
    shown = [first, *(index for index in rest if abs(head.sources[index]) >= 0.005)]
    return "  ".join(f"{keys.pieces[index]} {head.sources[index]:+.2f}" for index in shown)


def labelled_matrix(matrix: results.LabelledMatrix, name: str = "", description: str = "") -> doc.Matrix:
    """Matrix of the document, shaded, from a labelled matrix."""
    values = tuple(tuple(None if np.isnan(cell) else float(cell) for cell in row) for row in matrix.values)
    return doc.Matrix(
        name or matrix.name, values, matrix.rows, matrix.columns, matrix.row_axis, matrix.column_axis,
        description=description, shaded=True,
    )  # fmt: skip


def sweep_document(
    matrix: results.LabelledMatrix, model: str, text: str, metric: str, method: str, clean: float, corrupt: float | None
) -> doc.Document:
    """Document of a sweep: the metric of each variant as a heat map, and of the unchanged texts."""
    unchanged = f"Clean text: {clean:.4f}."
    if corrupt is not None:
        patched = "One activation of the clean text at a time runs in the corrupt one."
        unchanged += f" Corrupt text: {corrupt:.4f}. {patched}"
    what = {"patch": "Activation patching", "zero": "Zero ablation", "mean": "Mean ablation"}[method]
    base = clean if corrupt is None else corrupt
    shades = tuple(tuple(float(value) - base for value in row) for row in matrix.values)
    heat_map = replace(labelled_matrix(matrix, description="Shaded by the change of the metric."), shades=shades)
    parts: list[doc.DocumentPart] = [doc.Paragraph(f"{what}: {metric}. {unchanged}"), heat_map]
    if method == "zero":
        caution = "Zero is not an activation that later layers have seen; compare with the mean."
        parts.append(doc.Paragraph(caution, "note"))
    return doc.Document(f"Sweep over {matrix.name}: {doc.short_title(text, model)}", tuple(parts))


def _head_name(score: results.HeadScore) -> str:
    """Return the name of a head, as in 5.3 (layer.head), with its stack unless it is a decoder."""
    kind = "" if score.path.stack == "decoder" and "cross" not in score.path.part else f" ({score.path.stack})"
    cross = " cross" if "cross-attention" in attention_name(score.path) else ""
    return f"{score.path.layer}.{score.head}{kind}{cross}"


def rollout_document(record: results.AttentionRecord, matrix: results.LabelledMatrix) -> doc.Document:
    """Document of the rollout: how much of each token could reach each position after the last layer."""
    maps = doc.Maps("Attention rollout", matrix.values[None, None], matrix.rows, matrix.columns)
    caveat = doc.Paragraph(results.ROLLOUT_CAVEAT, "note")
    parts: tuple[doc.DocumentPart, ...] = (*opening_notes(record.interventions), maps, caveat)
    return doc.Document(doc.short_title(record.tokens.text, record.model), parts)


def attention_history_document(history: results.AttentionHistory, path: ModulePath | None = None) -> doc.Document:
    """Document of heat maps, heads by checkpoints, for one attention layer or for all that were recorded."""
    paths = [path] if path is not None else list(history.checkpoints[0].weights)
    parts: list[doc.DocumentPart] = []
    for at in paths:
        values = np.stack([np.asarray(frame.weights[at], dtype=np.float32) for frame in history.checkpoints], axis=1)
        queries = history.target if history.target is not None and at.stack == "decoder" else history.tokens
        keys = history.tokens if "cross" in at.part else queries
        heads, steps = tuple(map(str, range(len(values)))), tuple(f"{frame.step:,}" for frame in history.checkpoints)
        parts.append(doc.Maps(
            f"{attention_name(at)}, layer {at.layer}", values, queries.pieces, keys.pieces, heads, steps,
            down_axis="head", across_axis="after step", selected=(0, len(steps) - 1),
        ))  # fmt: skip
    parts.append(doc.capitalized_note(history.caveat))
    return doc.Document(f"Attention over training: {doc.short_title(history.tokens.text, history.run)}", tuple(parts))


def trace_document(trace: results.GenerationTrace) -> doc.Document:
    """Document with the candidates of every step, attention maps, KV cache use, and beams if there are several."""
    parts: list[doc.DocumentPart] = [doc.Paragraph(trace.text), *opening_notes(trace.interventions)]
    if trace.steps:
        computed = sum(step.num_computed for step in trace.steps)
        total = computed + sum(step.num_cached for step in trace.steps)
        description = f"{computed:,} tokens went through the model; without the cache, it would have been {total:,}."
        steps = tuple((step.num_cached, step.num_computed) for step in trace.steps)
        cache = doc.CacheFigure("KV cache, step by step", trace.keys, steps, description)
        parts += [_candidates_matrix(trace.steps), *_topk_attention_maps(trace), cache]
    if len(trace.beams) > 1:
        rows = tuple(
            (str(rank), beam.text, beam.steps[-1].cumulative_logprob if beam.steps else None)
            for rank, beam in enumerate(trace.beams, 1)
        )
        parts += [doc.Heading("Beams"), doc.Table(("beam", "text", "log-probability"), rows)]
    parts.append(doc.capitalized_note(trace.caveat))
    return doc.Document(doc.short_title(trace.prompt.text or trace.text, trace.model), tuple(parts))


def _candidates_matrix(steps: tuple[results.TraceStep, ...]) -> doc.Matrix:
    """Matrix of candidates for each generated token, shaded by probability; the sampled one is marked."""
    width = min(max(len(step.candidates) for step in steps), _MAX_CANDIDATES)
    shown = [step.candidates[:width] for step in steps]
    blank = ("",) * width
    values = tuple((*(f"{token.piece} {token.probability:.2f}" for token in row), *blank)[:width] for row in shown)
    shades = tuple((*(token.probability for token in row), *(None,) * width)[:width] for row in shown)
    marks = {
        (row, column)
        for row, (step, candidates) in enumerate(zip(steps, shown, strict=True))
        for column, token in enumerate(candidates)
        if token.id == step.id
    }

    def explain(row: int, column: int) -> doc.Arithmetic:
        token = steps[row].candidates[column]
        line = f"probability {token.probability:.4f}, log {np.log(max(token.probability, 1e-45)):.4f}"
        return doc.Arithmetic(f"step {row + 1}: {token.piece}", (line,))

    return doc.Matrix(
        "candidates", values, tuple(step.piece for step in steps), tuple(f"{rank + 1}." for rank in range(width)),
        "generated", "candidate", description="Candidates by probability; the chosen token is marked.",
        shaded=True, marks=frozenset(marks), explain=explain, shades=shades,
    )  # fmt: skip


def _topk_attention_maps(trace: results.GenerationTrace) -> Iterator[doc.Maps]:
    """Attention maps of the generated tokens, with the recorded top-k weights of each row."""
    kinds: dict[str, list[ModulePath]] = {}
    for topk in trace.steps[0].attention:
        kinds.setdefault(attention_name(topk.path), []).append(topk.path)
    for name, paths in kinds.items():
        cross = "cross-attention" in name
        keys = trace.source.pieces if cross and trace.source is not None else trace.keys
        heads = trace.steps[0].attention[0].keys.shape[0]
        values = np.zeros((len(paths), heads, len(trace.steps), len(keys)), dtype=np.float32)
        for row, step in enumerate(trace.steps):
            if not cross:
                values[:, :, row, step.num_cached + step.num_computed :] = np.nan
            for topk in step.attention:
                if topk.path in paths:
                    values[paths.index(topk.path), np.arange(heads)[:, None], row, topk.keys] = topk.weights
        yield doc.Maps(
            name, values, tuple(step.piece for step in trace.steps), keys,
            tuple(str(path.layer) for path in paths), tuple(map(str, range(heads))), row_axis="generated",
            description="Only the largest weights of each row were recorded; the others are drawn as 0.",
        )  # fmt: skip
