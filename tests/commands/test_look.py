"""`look`: captures, analyses and interventions, on every kind of model, with labels on every axis."""

import ast
import importlib
import inspect
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import peasy
from peasy.checkpoint.model import save_model
from peasy.commands.attention_history import attention_history
from peasy.commands.look import save_activations
from peasy.commands.look_result import intervened_model
from peasy.errors import InvalidInput, NotFound, ResourceUnavailable
from peasy.inspection.activation_store import read_activations
from peasy.inspection.results import LOOK_CAVEAT
from peasy.models.build import build
from peasy.models.preset import preset
from peasy.nn.module_path import ModulePath
from peasy.training.attention_snapshots import TrackedSentence, write_snapshot

TEXT = "The pizza came out of the oven and it tasted good."


@pytest.fixture
def model(decoder):
    return peasy.load(decoder)


@pytest.fixture(scope="session", params=["translator-tiny", "rnn-translator-tiny"])
def translator(request, tokenizer, tmp_path_factory):
    special_tokens = {"decoder_start": 0, "eos": [1]}
    settings = preset(request.param, vocab_size=280, d_model=16, special_tokens=special_tokens)
    return save_model(tmp_path_factory.mktemp("models") / request.param, build(settings, seed=3), tokenizer)


def test_norm_based_attention_is_what_a_key_adds_to_the_residual_stream(model):
    """Second computation: each key's value times its weight, through the output projection of the head alone."""
    x = model.look(TEXT, layers=[1], heads=[1], steps=["weights", "value"])
    (attention,) = (
        module
        for module in model.model.modules()
        if getattr(module, "path", None) == ModulePath("decoder", 1, "attention")
    )
    width = attention.d_head
    projection = attention.output.weight[:, width : 2 * width].detach().numpy()
    weights, value = (np.asarray(x.step(name)[1, 1]) for name in ("weights", "value"))
    added = weights[:, :, None] * (value @ projection.T)[None]
    np.testing.assert_allclose(x.norm_based_attention[1, 1], np.linalg.norm(added, axis=-1), rtol=1e-3, atol=1e-6)
    assert not np.allclose(x.norm_based_attention[1, 1], x.value_weighted_attention[1, 1])


def test_weights_by_layer_and_head_with_their_tokens(model):
    x = model.look(TEXT, layers=[1], heads=[0, 1])
    grid = x.weights[1, 0]
    assert grid.rows == grid.columns == x.tokens.pieces
    assert np.asarray(x.weights).shape == (1, 2, len(grid), len(grid))
    np.testing.assert_allclose(np.asarray(grid).sum(-1), 1, atol=1e-5)
    assert x.text == TEXT
    assert "pizza" in x.weights.by_words[1, 0].rows
    np.testing.assert_allclose(
        x.value_weighted_attention[1, 0], np.asarray(grid) * x.captures[0].value_norms[0], rtol=1e-5
    )
    for wrong in (x.weights.__getitem__, lambda at: x.cross_attention[at]):
        with pytest.raises(NotFound):
            wrong((0, 0))
    with pytest.raises(NotFound, match="Head 5"):
        x.weights[1, 5]
    with pytest.raises(InvalidInput, match="by layer and head"):
        x.weights[1]


def test_names_folders_loaded_models_and_objects_give_the_same_weights(foreign):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(foreign)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(foreign / "tokenizer.json"))
    results = [
        peasy.look(foreign, TEXT), peasy.look(str(foreign), TEXT), peasy.load(foreign).look(TEXT),
        peasy.look(theirs, TEXT, tokenizer=tokenizer), peasy.look(peasy.load(foreign).model, list(prompt_ids(foreign))),
    ]  # fmt: skip
    for other in results[1:]:
        np.testing.assert_allclose(np.asarray(other.weights), np.asarray(results[0].weights), atol=1e-6)
    with pytest.raises(InvalidInput, match="not a model that peasy can inspect"):
        peasy.look(object(), TEXT)


def prompt_ids(folder):
    return peasy.load(folder).encode_prompt(TEXT)


def test_largest_weights_of_a_query_word(model):
    x = model.look(TEXT)
    lines = x.heads(query="it", top=3).heads
    assert [(line.path.layer, line.head) for line in lines] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    grid = x.weights.by_words[1, 1]
    row = grid.values[grid.rows.index("it")]
    word, weight = lines[-1].top_words[0]
    assert weight == pytest.approx(row.max())
    assert word == grid.columns[row.argmax()]
    page = str(x.heads("it"))
    assert '"it" attends to' in page
    assert LOOK_CAVEAT[1:40] in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80
    only = model.look(TEXT, queries=["it"]).heads("it", top=3).heads
    assert [line.top_words[0][0] for line in only] == [line.top_words[0][0] for line in lines]
    with pytest.raises(InvalidInput, match='"them" is not in the text'):
        x.heads("them")
    with pytest.raises(NotFound, match="not among the captured queries"):
        model.look(TEXT, queries=[2]).heads("it")


def test_every_step_and_the_residual_stream(model):
    steps = ["scores", "scaled", "masked", "weights", "context", "query", "key", "value", "residual", "activation"]
    x = model.look(TEXT, steps=steps)
    q, k = (np.asarray(x.step(name)[1, 0], dtype=np.float64) for name in ("query", "key"))
    np.testing.assert_allclose(x.step("scores")[1, 0], q @ k.T, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(
        np.asarray(x.weights[1, 0]) @ np.asarray(x.step("value")[1, 0]), x.step("context")[1, 0], atol=1e-4
    )
    assert x.activations("residual", 2).shape == (len(q), 16)
    assert x.activations("activation", 1, "feedforward").shape == (len(q), 32)
    with pytest.raises(NotFound):
        x.activations("normed")
    with pytest.raises(NotFound, match="No weights"):
        _ = model.look(TEXT, steps="residual").weights[0, 0]


def test_captures_over_the_budget_are_refused_before_the_run(model, monkeypatch):
    monkeypatch.setattr(model.model, "hidden", lambda *args, **kwargs: pytest.fail("the model ran"))
    with pytest.raises(ResourceUnavailable, match=r"[\d.]+ KiB in float16, but the budget is 1000 bytes") as error:
        model.look(TEXT, max_memory=1000)
    assert "overview" in str(error.value.hint)


def test_float16_storage_is_chosen_if_needed_and_shown(model):
    count = len(model.encode_prompt(TEXT))
    x = model.look(TEXT, max_memory=4 * count * count * 3)
    assert x.storage == "float16"
    assert "float16" in str(x)
    assert model.look(TEXT).storage == "float32"


def test_an_intervention_is_named_in_every_view_and_its_effect_measured(model):
    x = model.look(TEXT)
    y = model.look(x.text, edit=peasy.edit.zero(layer=1, head=0))
    for shown in (str(y), str(y.heads("it")), y.html(), str(y.summary())):
        assert "layer 1, head 0 set to zero" in " ".join(shown.split())
    effect = x.compare(y, words=["good"])
    assert effect.kl_divergence > 0
    assert effect.max_logit_change == pytest.approx(np.abs(x.logits - y.logits).max())
    (word, before, after) = effect.tracked_words[0]
    assert (word, before != after) == ("good", True)
    probabilities = torch.softmax(torch.from_numpy(x.logits), -1)
    assert effect.before[0].probability == pytest.approx(float(probabilities.max()), abs=1e-6)
    assert x.compare(model.look(TEXT)).kl_divergence == 0
    with pytest.raises(InvalidInput, match="same text"):
        x.compare(model.look("The oven"))


def test_cut_patch_and_uniform_attention(model):
    x = model.look(TEXT)
    y = model.look(TEXT, edit=peasy.edit.cut("it", "pizza", layer=0))
    assert y.weights.by_words[0, 1].values[x.weights.by_words[0, 1].rows.index("it"), 2] == 0
    z = model.look(TEXT, edit=[peasy.edit.patch(TEXT, 1), peasy.edit.uniform(0, 1)])
    assert len(z.interventions) == 2
    assert "attends uniformly" in z.interventions[1]


def test_loss_on_data_under_an_intervention(model, tmp_path):
    (tmp_path / "validation.txt").write_text((TEXT + "\n") * 30)
    x, y = model.look("The pizza"), model.look("The pizza", edit=peasy.edit.zero(0))
    effect = x.compare(y, data=str(tmp_path / "validation.txt"), split="all")
    loss = next(measure for measure in effect.metrics if measure[0] == "loss")
    assert loss[1] != loss[2]
    plain = peasy.evaluate(model, str(tmp_path / "validation.txt"), split="all")
    assert loss[1] == pytest.approx(plain["loss"])
    assert intervened_model(x) is model


def test_logit_lens_rollout_and_steps_of_one_head(model):
    x = model.look(TEXT)
    assert x.logit_lens(queries=["it"]).layers == (0, 1, 2)
    assert "top prediction" in str(x.logit_lens())
    np.testing.assert_allclose(np.asarray(x.rollout()).sum(1), 1, atol=1e-5)
    page = str(x.steps(1, 0, query="it"))
    assert "Softmax" in page


def test_one_head_step_by_step_has_the_weights_of_the_model(model):
    x = model.look(TEXT)
    head = x.steps(1, 0)
    np.testing.assert_allclose(head.worked().step("weights").values, np.asarray(x.weights[1, 0]), atol=1e-5)
    assert "the same weights to within" in " ".join(str(head).split())
    weights = next(matrix for matrix in head.document().matrices() if matrix.name == "weights")
    assert weights.explain(3, 1).lines
    row = x.tokens.find("it")[-1]
    one = x.steps(1, 0, query="it").worked()
    assert (one.tokens, one.keys) == (x.tokens.pieces[row : row + 1], x.tokens.pieces[: row + 1])
    np.testing.assert_allclose(
        one.step("weights").values[0], np.asarray(x.weights[1, 0])[row, : row + 1], atol=1e-5
    )  # fmt: skip
    other = [replace(c, array=c.array[:, :, ::-1].copy()) if c.step == "weights" else c for c in head.captures]
    assert "weights differ by" in " ".join(str(replace(head, captures=tuple(other))).split())
    with pytest.raises(NotFound, match="no cross-attention in layer 1"):
        str(x.steps(1, 0, part="cross_attention"))


def test_heads_are_ranked(model):
    result = model.heads([TEXT, "The oven tasted good"], by="previous")
    ranked = [score.previous for score in result.ranked("previous")]
    assert ranked == sorted(ranked, reverse=True)
    assert result.sentences == 2
    assert "Attention heads of" in str(result)
    with pytest.raises(InvalidInput, match="cannot be ranked"):
        model.heads(TEXT, by="previus")


def test_a_trace_of_generation(model):
    result = model.trace("The pizza", max_tokens=4, top=3)
    assert result.text == model.generate("The pizza", max_tokens=4).texts[0]
    assert [step.num_cached for step in result.steps][1:] == [
        len(result.prompt) + n for n in range(len(result.steps) - 1)
    ]
    assert all(step.candidates[0].id == step.id for step in result.steps)
    assert result.steps[0].attention[0].keys.shape == (2, 3)
    beams = model.trace("The pizza", max_tokens=4, num_beams=3)
    assert len(beams.beams) == 3
    assert beams.beams[0].steps[-1].cumulative_logprob >= beams.beams[-1].steps[-1].cumulative_logprob - 1e-9
    assert json.dumps(result.data())


def test_cross_attention_and_alignment_of_translators(translator):
    model = peasy.load(translator)
    x = model.look("The pizza came out", "it tasted good")
    assert x.cross_attention.layers
    grid = x.cross_attention[x.cross_attention.layers[-1], 0]
    assert grid.columns == x.tokens.pieces
    assert len(grid.rows) == len(x.labelled_input.outputs)
    result = x.alignment()
    assert result.weights.shape == (len(x.labelled_input.outputs.words), len(x.tokens.words))
    np.testing.assert_allclose(result.weights.sum(1), 1, atol=1e-4)
    assert "Alignment" in str(result)
    without_target = model.look("The pizza came out")
    assert without_target.target is not None
    assert model.trace("The pizza", max_tokens=3).source is not None
    y = model.look("The pizza came out", "it tasted good", edit=peasy.edit.zero(0, 0, part="cross_attention"))
    assert x.compare(y).kl_divergence > 0
    assert str(x.summary())


def test_gold_links_choose_the_head(translator):
    model = peasy.load(translator)
    x = model.look("The pizza came", "it tasted good")
    result = x.alignment(gold=[(0, 0), (1, 1), (2, 2)])
    assert result.scores[0].accuracy is not None
    assert result.scores[0].accuracy == max(score.accuracy for score in result.scores)
    assert len(result.gold) == 3


def test_bleu_under_an_intervention(translator, tmp_path):
    """Both columns equal separate evaluations: of the model, and of the model under the intervention."""
    model = peasy.load(translator)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("The pizza\tit tasted\nThe oven\tcame out of it\n")
    edit = peasy.edit.zero(0, 0, part="cross_attention")
    x, y = model.look("The pizza", "it tasted"), model.look("The pizza", "it tasted", edit=edit)
    measures = {name: rest for name, *rest in x.compare(y, data=str(pairs), split="all").metrics}
    assert "BLEU" in measures
    for column, evaluated in enumerate((model, intervened_model(y))):
        expected = peasy.evaluate(evaluated, str(pairs), split="all")
        assert {name: values[column] for name, values in measures.items()} == {
            name: pytest.approx(expected[name]) for name in measures
        }
    assert measures["loss"][0] != measures["loss"][1], "the intervention has an effect"


def test_encoders_attend_in_both_directions_and_explain_similarity(encoder):
    model = peasy.load(encoder)
    x = model.look("The pizza came out")
    assert np.asarray(x.weights)[0, 0, 0, -1] > 0
    assert x.next_tokens == ()
    result = model.explain_similarity("The pizza came out", "it tasted good")
    first, second = model.embed(["The pizza came out", "it tasted good"])
    assert result.cosine == pytest.approx(float(first @ second), abs=1e-6)
    assert result.pairs.sum() == pytest.approx(result.cosine, abs=1e-6)
    assert "pizza" in str(result)


def test_long_texts_in_tiles_and_exact_rows(model):
    whole = model.look(TEXT)
    result = model.look(TEXT, overview="max", tile_size=4, queries=["it"], layers=[1])
    (overview,) = result.overviews
    matrix = np.asarray(whole.weights)[0, 1] if whole.weights.layers == (1,) else np.asarray(whole.weights)[1, 1]
    assert overview.tiles[1, 0, 0] == pytest.approx(matrix[:4, :4].max(), abs=1e-6)
    (exact,) = result.exact_rows
    np.testing.assert_allclose(exact.array[1], matrix[list(exact.rows)], atol=1e-6)
    assert "tokens" in str(result)
    with pytest.raises(ResourceUnavailable):
        model.look(TEXT, overview="mean", tile_size=1, max_memory=100)


def test_activations_of_a_data_set_in_shards(model, tmp_path):
    store = save_activations(model, [TEXT, "The oven"], tmp_path / "activations", layers=[1])
    assert store.num_sequences == 2
    (first, arrays), _ = read_activations(tmp_path / "activations")
    assert first.ids == tuple(model.encode_prompt(TEXT))
    assert [path.layer for path, step in arrays if step == "weights"] == [1]


def test_attention_over_training(model, tmp_path, tmp_path_factory):
    ids = tuple(model.encode_prompt("The pizza"))
    pieces = tuple(model.tokenizer.piece(id) for id in ids)
    for step in (1, 5):
        write_snapshot(tmp_path, step, model.model, TrackedSentence(ids, pieces))
    result = attention_history(tmp_path)
    assert [frame.step for frame in result.checkpoints] == [1, 5]
    expected = np.asarray(model.look("The pizza").weights)[1]
    np.testing.assert_allclose(result.checkpoints[1].weights["decoder", 1, "attention"], expected, atol=1e-3)
    assert "The pizza" in str(result)
    with pytest.raises(NotFound, match="no attention"):
        attention_history(tmp_path_factory.mktemp("empty"))


def test_files_and_data(model, tmp_path):
    x = model.look(TEXT, layers=[1])
    for name in ("x.html", "x.svg", "x.json", "x.csv", "x.md"):
        assert x.save(tmp_path / name).stat().st_size > 100
    data = json.loads((tmp_path / "x.json").read_text())
    assert data["captures"][0]["path"] == {"stack": "decoder", "layer": 1, "part": "attention"}
    assert data["tokens"]["pieces"] == list(x.tokens.pieces)
    assert data["caveat"] == LOOK_CAVEAT
    assert "LookResult" in repr(x)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" ", {}, "text is empty"),
        (TEXT, {"layers": [7]}, "no layer 7"),
        (TEXT, {"heads": 9}, "no head 9"),
        (TEXT, {"queries": ["them"]}, "not in the text"),
        (TEXT, {"steps": ["wieghts"]}, "wieghts"),
        (TEXT, {"target": "x"}, "has a target"),
        (TEXT, {"max_memory": "lots"}, "not a valid amount"),
        (TEXT, {"overview": "median"}, "median"),
        (TEXT, {"edit": peasy.edit.zero(9)}, "no layer 9"),
    ],
)
def test_invalid_arguments_are_refused(model, text, options, message):
    loaded = replace(model, tokenizer=model.tokenizer)
    with pytest.raises(InvalidInput, match=message):
        loaded.look(text, **options)


def test_captured_logits_equal_the_model_output(decoder, translator):
    """They are captured whichever layers are selected, labelled by tokens, and counted in the budget."""
    model = peasy.load(decoder)
    x = model.look("The pizza came out", steps=["logits"], layers=[0], queries=[0, -1])
    grid = x.activations("logits")
    expected = model.model(torch.tensor([x.tokens.ids]))[0, [0, -1]]
    np.testing.assert_allclose(np.asarray(grid), expected.detach().numpy(), atol=1e-5)
    assert grid.columns[x.next_tokens[0].id] == x.next_tokens[0].piece
    assert "logits" in str(x)
    with pytest.raises(ResourceUnavailable):
        model.look("The pizza came out", steps=["logits"], max_memory="1KB", storage="float32")
    translated = peasy.load(translator).look("The pizza", "it tasted", steps=["logits"])
    assert translated.activations("logits").shape[0] == len(translated.target)
    with pytest.raises(NotFound, match="No logits was"):
        model.look("The pizza").activations("logits")


def test_a_map_has_queries_and_keys_if_they_were_captured(decoder):
    from peasy.formula import unnormalised_weights

    model = peasy.load(decoder)
    x = model.look("The pizza came out", steps=("weights", "query", "key"))
    maps = next(part for part in x.document().parts if hasattr(part, "vectors"))
    count = maps.values.shape[-1]
    for index in np.ndindex(*maps.values.shape[:2]):
        powers, total = unnormalised_weights(
            maps.vectors.query[index], maps.vectors.key[index], mask=np.tril(np.ones((count, count), bool)),
            scale=maps.vectors.scale,
        )  # fmt: skip
        np.testing.assert_allclose(powers / total, np.nan_to_num(maps.values[index]), atol=1e-5)
    plain = next(part for part in model.look("The pizza").document().parts if hasattr(part, "vectors"))
    assert plain.vectors is None
    assert plain.command.endswith("'The pizza'")


def test_lists_ids_tensors_and_padded_batches_give_the_result_of_each_text(model):
    texts = [TEXT, "The oven"]
    ids = [list(model.look(text).tokens.ids) for text in texts]
    longest = max(map(len, ids))
    padded = torch.tensor([[0] * (longest - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in ids])
    batches = [model.look(texts), model.look(ids), model.look(padded, padding_mask=mask)]
    for batch in batches:
        assert len(batch) == 2
        for one, text in zip(batch, texts, strict=True):
            np.testing.assert_allclose(np.asarray(one.weights), np.asarray(model.look(text).weights), atol=1e-6)
    np.testing.assert_array_equal(model.look(torch.tensor(ids[0])).logits, model.look(TEXT).logits)
    np.testing.assert_array_equal(model.look(np.array([ids[0]]))[0].logits, model.look(TEXT).logits)
    assert "2 texts" in repr(batches[0])
    assert "strongest links" in str(batches[0])
    assert len(batches[0].data()["results"]) == 2
    for wrong, message in (([], "no text"), ([TEXT, 3], "no text")):
        with pytest.raises(InvalidInput, match=message):
            model.look(wrong)
    with pytest.raises(InvalidInput, match="padding_mask has the shape"):
        model.look(padded, padding_mask=mask[:, 1:])


def test_matrices_are_indexed_by_word_token_and_from_the_end(model):
    x = model.look(TEXT)
    grid, tokens = x.weights[-1, -1], x.tokens
    np.testing.assert_array_equal(grid.values, x.weights[1, 1].values)
    rows, columns = (list(tokens.find(word)) for word in ("it", "pizza"))
    assert len(columns) > 1, "a word of several tokens"
    assert grid["it", "pizza"] == pytest.approx(grid.values[np.ix_(rows, columns)].sum(1).mean())
    assert x.weights.by_words[-1, -1]["it", "pizza"] == pytest.approx(grid["it", "pizza"], abs=1e-6)
    np.testing.assert_allclose(grid["it"], grid.values[rows].mean(0), atol=1e-7)
    assert grid[2, 1] == grid.values[2, 1]
    assert torch.equal(torch.from_dlpack(grid), torch.from_numpy(np.asarray(grid)))
    assert x.weights.torch().shape == x.weights.numpy().shape
    assert "<table" in grid._repr_html_() or "<svg" in grid._repr_html_()
    with pytest.raises(InvalidInput, match="not in the text"):
        grid["them", "pizza"]
    only = model.look(TEXT, queries=["it"]).weights[0, 0]
    assert only["it", "pizza"] == pytest.approx(x.weights[0, 0]["it", "pizza"], abs=1e-6)
    with pytest.raises(NotFound, match="not among the captured rows"):
        only["good"]


def test_attribution_adds_up_on_the_terminal_in_the_table_and_on_the_page(model):
    x = model.look(TEXT)
    result = x.attribution()
    assert result.token == x.next_tokens[0].piece
    assert result.logit == pytest.approx(float(x.logits.max()), abs=1e-5)
    assert abs(result.rounding) < 1e-4
    assert sum(result.by_layer().values()) + result.rounding == pytest.approx(result.logit)
    difference = x.attribution("good", against="it", position="oven")
    assert abs(difference.rounding) < 1e-4
    np.testing.assert_allclose(difference.sources().values.sum(1), difference.heads().values.ravel(), atol=1e-9)
    for page in (str(difference), difference.html()):
        assert "Addends by layer" in page
    assert max(map(len, str(difference).splitlines())) <= 80
    assert json.dumps(difference.data())
    edited = model.look(TEXT, edit=peasy.edit.zero(1, 0)).attribution()
    assert "set to zero" in str(edited)
    assert abs(edited.rounding) < 1e-4


def test_a_panel_for_a_paper(model, tmp_path):
    figure = model.look(TEXT).plot("pattern", layer=1, head=0, width_cm=5)
    assert figure.save(tmp_path / "pattern.svg").read_text().startswith("<svg")
    assert "5 cm" in repr(figure)


def test_overloads_know_every_keyword():
    """A type checker sees the overloads, whose keywords are declared apart."""
    look_module = importlib.import_module("peasy.commands.look")
    tree = ast.parse(Path(look_module.__file__).read_text(encoding="utf-8"))
    options = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "LookOptions")
    known = {line.target.id for line in options.body if isinstance(line, ast.AnnAssign)}
    keywords = inspect.signature(look_module.look).parameters.values()
    assert known == {each.name for each in keywords if each.kind is each.KEYWORD_ONLY}
