"""Solver: the numbers of the lecture documents, each computed in two ways."""

import dataclasses
from importlib import import_module

import numpy as np
import pytest

from peasy.errors import InvalidInput, NotFound
from peasy.formula import attend_with_weights
from peasy.worked import example_names, load_example, read_example, solve


def values(name: str, step: str) -> np.ndarray:
    return solve(load_example(name)).step(step).values


def test_i_love_ai_step_by_step():
    steps = {step.name: step.values for step in solve(load_example("i-love-ai")).steps}
    assert list(steps) == [
        "x", "w_q", "w_k", "w_v", "query", "key", "value", "scores", "scaled", "weights", "context",
    ]  # fmt: skip
    np.testing.assert_array_equal(steps["query"], [[1, 0], [1, 1], [2, 1]])
    np.testing.assert_array_equal(steps["key"], [[0, 1], [1, 0], [1, 1]])
    np.testing.assert_array_equal(steps["value"], [[1, 2], [0, 1], [1, 3]])
    np.testing.assert_array_equal(steps["scores"], [[0, 1, 1], [1, 1, 2], [1, 2, 3]])
    scaled = [[0, 0.7071, 0.7071], [0.7071, 0.7071, 1.4142], [0.7071, 1.4142, 2.1213]]
    np.testing.assert_allclose(steps["scaled"], scaled, atol=1e-4)
    weights = [[0.1978, 0.4011, 0.4011], [0.2483, 0.2483, 0.5035], [0.14, 0.284, 0.576]]
    np.testing.assert_allclose(steps["weights"], weights, atol=1e-4)
    np.testing.assert_allclose(steps["context"], [[0.5989, 2], [0.7517, 2.2552], [0.716, 2.292]], atol=1e-4)


def test_the_steps_are_those_of_the_formula():
    example = load_example("i-love-ai-two-heads")
    steps = attend_with_weights(example.x, example.w_q, example.w_k, example.w_v, heads=2)
    worked = solve(example)
    for name in ("query", "key", "value", "scores", "scaled", "weights", "context"):
        for head in (1, 2):
            step = worked.step(f"head-{head}.{name}")
            np.testing.assert_array_equal(step.values, steps[name][head - 1])
            assert (step.tex, step.description) == (steps.step(name).tex, steps.step(name).description)
    np.testing.assert_array_equal(worked.step("concat").values, steps.concat)


def test_i_love_ai_causal():
    worked = solve(load_example("i-love-ai-causal"))
    weights = [[1, 0, 0], [0.5, 0.5, 0], [0.14, 0.284, 0.576]]
    np.testing.assert_allclose(worked.step("weights").values, weights, atol=1e-4)
    np.testing.assert_allclose(worked.step("context").values, [[1, 2], [0.5, 1.5], [0.716, 2.292]], atol=1e-4)
    hidden = np.isneginf(worked.step("masked").values)
    np.testing.assert_array_equal(hidden, np.triu(np.ones((3, 3), bool), 1))


def test_i_love_ai_two_heads():
    worked = solve(load_example("i-love-ai-two-heads"))
    one, two = worked.step("head-1.context").values, worked.step("head-2.context").values
    np.testing.assert_allclose(one[:, 0], [0.5777, 0.5777, 0.5317], atol=1e-4)
    np.testing.assert_allclose(two[:, 0], [2.0, 2.267, 2.267], atol=1e-4)
    np.testing.assert_array_equal(worked.step("concat").values, np.hstack([one, two]))


def test_i_love_ai_cross_attention():
    worked = solve(load_example("i-love-ai-source-target"))
    np.testing.assert_allclose(worked.step("weights").values, [[0.5, 0.5], [0.3302, 0.6698]], atol=1e-4)
    np.testing.assert_allclose(worked.step("context").values, [[0.5, 2], [0.6698, 2.3395]], atol=1e-4)
    assert worked.step("scores").rows == ("I", "AI")
    assert worked.step("scores").columns == ("love", "AI")


def variant(name: str, called: str) -> np.ndarray:
    example = load_example(name)
    (found,) = [option for option in example.variants if option.name == called]
    return solve(example.with_variant(found)).step("weights" if not example.last_step else example.last_step).values


def test_five_words_by_three_scorings():
    cosine = variant("apple-similarity", "cosine")
    expected = np.eye(5)
    for left, right, similar in ((0, 2, 0.7071), (1, 2, 0.7071), (3, 4, 1)):
        expected[left, right] = expected[right, left] = similar
    np.testing.assert_allclose(cosine, expected, atol=1e-4)
    dot = variant("apple-similarity", "dot product")
    assert dot[0, 2] == dot[3, 4] == 6
    scaled = variant("apple-similarity", "scaled dot product")
    np.testing.assert_allclose([scaled[0, 2], scaled[3, 4]], 3.4641, atol=1e-4)


def test_an_apple_and_an_orange_in_four_ways():
    np.testing.assert_allclose(variant("apple-orange", "unnormalised")[0], [1, 0.7071, 0, 0], atol=1e-4)
    related = variant("apple-orange", "the related words only")
    np.testing.assert_allclose(related[0], [0.5727, 0.4273, 0, 0], atol=1e-4)
    np.testing.assert_allclose(related[2], [0, 0, 0.5, 0.5], atol=1e-4)
    softmax = variant("apple-orange", "softmax over all")
    expected = [[0.4029, 0.3006, 0.1482, 0.1482], [0.3006, 0.4029, 0.1482, 0.1482]]
    expected += [[0.1345, 0.1345, 0.3655, 0.3655]] * 2
    np.testing.assert_allclose(softmax, expected, atol=1e-4)
    np.testing.assert_allclose(values("apple-orange", "weights"), softmax)
    np.testing.assert_allclose(variant("apple-orange", "division by the sum")[0], [0.5858, 0.4142, 0, 0], atol=1e-4)


def test_an_apple_phone():
    related = variant("apple-phone", "the related words only")
    np.testing.assert_allclose(related[[0, 2]], [[0.5727, 0.4273, 0], [0, 0, 1]], atol=1e-4)
    softmax = variant("apple-phone", "softmax over all")
    np.testing.assert_allclose(softmax[[0, 2]], [[0.4730, 0.3529, 0.1740], [0.2119, 0.2119, 0.5761]], atol=1e-4)


@pytest.mark.parametrize("name", ["apple-orange", "apple-phone"])
def test_related_words_are_those_whose_score_is_not_zero(name: str):
    example = load_example(name)
    np.testing.assert_array_equal(np.asarray(example.variants[1].mask), values(name, "scores") != 0)


def test_journey():
    weights, context = values("journey", "weights"), values("journey", "context")
    np.testing.assert_allclose(weights[1], [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581], atol=1e-4)
    np.testing.assert_allclose(context[1], [0.4419, 0.6515, 0.5683], atol=1e-4)
    np.testing.assert_allclose(weights[0], [0.2098, 0.2006, 0.1981, 0.1242, 0.1220, 0.1452], atol=1e-4)
    np.testing.assert_allclose(context[0], [0.4421, 0.5931, 0.5790], atol=1e-4)


def next_word_loss(example) -> float:
    """Next-word cross-entropy loss, which the learned matrices were trained on."""
    logits = solve(example).step("context").values @ np.asarray(example.x).T
    logits = logits[:-1] - logits[:-1].max(axis=1, keepdims=True)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return float(-np.log(probabilities[np.arange(5), np.arange(1, 6)]).mean())


def decay(example) -> float:
    return 0.001 * sum((np.asarray(w) ** 2).sum() for w in (example.w_q, example.w_k, example.w_v))


def test_learned_weights_have_lower_loss():
    learned = load_example("journey-learned")
    unlearned = dataclasses.replace(load_example("journey"), causal=True)
    assert learned.x == unlearned.x
    assert next_word_loss(learned) < 1.0 < 1.7 < next_word_loss(unlearned)
    lowest = next_word_loss(learned) + decay(learned)
    for name in ("w_q", "w_k", "w_v"):
        for row in range(3):
            nudged = np.asarray(getattr(learned, name))
            nudged[row] *= 1.2
            other = dataclasses.replace(learned, **{name: tuple(map(tuple, nudged.tolist()))})
            assert next_word_loss(other) + decay(other) > lowest, "not a local minimum"


def test_easy_peasy_has_only_weights():
    worked = solve(load_example("easy-peasy"))
    assert worked.names == ("weights",)
    np.testing.assert_array_equal(worked.step("weights").values[3], [0.2, 0.1, 0.3, 0.4])


def test_pizza():
    projected = [[1.995, 3.821], [2.0028, 3.841], [2.9808, 5.741], [1.434, 3.13]]
    for step in ("query", "key"):
        np.testing.assert_allclose(values("pizza-projection", step), projected, atol=1e-4)
    assert values("pizza", "context")[0, 0] == pytest.approx(1.0024, abs=1e-4)
    assert solve(load_example("pizza")).names == ("value", "weights", "context")


def test_softmax_stays_between_zero_and_one_unlike_the_sum():
    softmax, by_sum = variant("softmax-or-sum", "softmax"), variant("softmax-or-sum", "division by the sum")
    assert (softmax >= 0).all()
    assert (softmax <= 1).all()
    assert by_sum.min() < 0
    assert by_sum.max() > 1
    assert softmax[2, 2] > 0.99 > by_sum[2, 2]


def test_first_causal_token_attends_only_to_itself():
    masked = variant("pizza-masked", "masked attention")
    np.testing.assert_array_equal(masked[0], np.eye(11)[0])
    unmasked = variant("pizza-masked", "self-attention")
    it, pizza = 8, 1
    assert (unmasked[0] > 0).all()
    assert all(table[it, pizza] == max(np.delete(table[it], it)) for table in (masked, unmasked))


def test_row_dim_and_col_dim_select_the_axes():
    """The computation of the SelfAttention class in the slides, with its own variable names."""
    example = load_example("self-attention")
    turned = dataclasses.replace(example, x=tuple(zip(*example.x, strict=True)), row_dim=1, col_dim=0)
    np.testing.assert_array_equal(solve(turned).step("context").values, solve(example).step("context").values)

    row_dim, col_dim = 0, 1
    token_encodings = np.asarray(example.x)
    q, k, v = (token_encodings @ np.asarray(w) for w in (example.w_q, example.w_k, example.w_v))
    scaled_sims = q @ np.swapaxes(k, row_dim, col_dim) / k.shape[col_dim] ** 0.5
    powers = np.exp(scaled_sims - scaled_sims.max(axis=col_dim, keepdims=True))
    context = (powers / powers.sum(axis=col_dim, keepdims=True)) @ v
    np.testing.assert_allclose(solve(example).step("context").values, context)
    with pytest.raises(InvalidInput, match="row_dim is 1 and col_dim is 1"):
        dataclasses.replace(example, row_dim=1)


def test_token_by_token_equals_matrix_form():
    """The matrix form of Q, K, V is only for efficiency."""
    example = load_example("i-love-ai")
    w_q, w_k, w_v = (np.asarray(w) for w in (example.w_q, example.w_k, example.w_v))
    for index, vector in enumerate(np.asarray(example.x)):
        powers = [np.exp(((vector @ w_q) * (other @ w_k)).sum() / 2**0.5) for other in np.asarray(example.x)]
        summed = sum(power / sum(powers) * (other @ w_v) for power, other in zip(powers, example.x, strict=True))
        np.testing.assert_allclose(values("i-love-ai", "context")[index], summed, rtol=1e-14)


@pytest.mark.parametrize("name", example_names())
def test_every_library_example_is_solved_and_described(name: str):
    example = load_example(name)
    worked = solve(example)
    assert example.title
    assert example.description
    assert example.source
    for step in worked.steps:
        assert step.values.shape == (len(step.rows), len(step.columns))
        assert step.tex
        assert step.description
    for variant in example.variants:
        solve(example.with_variant(variant))


def test_steps_without_inputs_are_not_computed():
    assert solve(read_example({"title": "t", "tokens": ["a"], "x": [[1]], "w_q": [[2]]})).names == ("x", "w_q", "query")
    only = solve(read_example({"title": "t", "tokens": ["a"], "q": [[1]], "k": [[2]]}))
    assert only.names == ("query", "key", "scores", "scaled", "weights")
    with pytest.raises(InvalidInput, match="nothing to compute"):
        solve(read_example({"title": "t", "tokens": ["a"]}))


def test_shape_errors_suggest_what_fits():
    example = {"title": "t", "tokens": ["a", "b", "c"], "x": [[1, 2]] * 3, "w_q": [[1, 2]] * 3}
    with pytest.raises(InvalidInput, match=r"3x2 · 3x2 is not defined, 3x2 · 2x3 is") as caught:
        solve(read_example(example))
    assert caught.value.hint == "Transpose w_q."


def test_bias_is_added_and_minus_infinity_masks():
    given = {"title": "t", "tokens": ["a", "b"], "x": [[1, 0], [0, 1]], "scoring": "dot"}
    worked = solve(read_example(given | {"bias": [[0, "-inf"], [1, 2]]}))
    np.testing.assert_array_equal(worked.step("masked").values, [[1, -np.inf], [1, 3]])
    again = solve(read_example(given | {"bias": np.array([[0, -np.inf], [1, 2]])}))
    np.testing.assert_array_equal(again.step("weights").values, worked.step("weights").values)
    assert "masked" not in solve(read_example(given)).names


def test_additive_scoring_and_grouped_heads():
    additive = {"kind": "additive", "w": [[1, 0], [0, 1]], "u": [[1, 1], [0, 1]], "v": [1, 2]}
    given = {"title": "t", "tokens": ["a", "b"], "x": [[1, 0], [0, 1]]}
    scores = solve(read_example(given | {"scoring": additive})).step("scores").values
    assert scores[0, 1] == pytest.approx(np.tanh(1) + 2 * np.tanh(1))
    with pytest.raises(InvalidInput, match="inner dimensions should match"):
        solve(read_example(given | {"scoring": additive | {"w": [[1, 0]]}}))
    grouped = given | {"w_q": [[1, 0], [0, 1]], "w_k": [[2], [3]], "w_v": [[1], [1]], "heads": 2}
    worked = solve(read_example(grouped))
    assert worked.step("head-2.key").columns == worked.step("head-1.key").columns == ("0",)
    assert worked.step("head-2.query").columns == ("1",)


def test_steps_are_found_by_alias():
    worked = solve(load_example("i-love-ai"))
    assert worked.step("Q") is worked.step("query")
    with pytest.raises(NotFound, match="no step") as caught:
        worked.step("wieghts")
    assert "Did you mean weights?" in caught.value.hint


def test_too_many_scores_are_rejected_before_computing(monkeypatch):
    tokens = [f"t{index}" for index in range(10_000)]
    long = read_example({"title": "t", "tokens": tokens, "x": [[1.0, 2.0]] * 10_000})
    monkeypatch.setattr(
        import_module("peasy.worked.solver"), "attention_graph", lambda *given: pytest.fail("was calculated")
    )
    with pytest.raises(InvalidInput, match="10,000 queries on 10,000 keys"):
        solve(long)


def test_overflow_is_an_error():
    with pytest.raises(InvalidInput, match="overflow"):
        solve(read_example({"title": "t", "tokens": ["a", "b"], "x": [[1e200, 1e200], [1, 1e200]]}))


def test_cross_attention_keys_are_not_made_from_the_inputs():
    given = {"title": "t", "tokens": ["a", "b"], "source_tokens": ["c", "d", "e"], "x": [[1], [2]]}
    assert solve(read_example(given)).names == ("x", "query")
    assert solve(read_example(given | {"source_x": [[1], [2], [3]]})).step("weights").values.shape == (2, 3)
