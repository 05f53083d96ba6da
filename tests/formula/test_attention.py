"""Attention formula: known numbers on every library, captions and errors."""

import ml_dtypes
import numpy as np
import pytest
import torch

from peasy import Additive, PeasyError, attend, attend_with_weights
from peasy.errors import InvalidInput
from peasy.formula import attention, unnormalised_weights

X = [[1, 0], [0, 1], [1, 1]]
W_Q = [[1, 0], [1, 1]]
W_K = [[0, 1], [1, 0]]
W_V = [[1, 2], [0, 1]]
SIX_TOKENS = [
    [0.43, 0.15, 0.89],
    [0.55, 0.87, 0.66],
    [0.57, 0.85, 0.64],
    [0.22, 0.58, 0.33],
    [0.77, 0.25, 0.10],
    [0.05, 0.80, 0.55],
]
ORANGE, PHONE, APPLE, AND, AN = [0, 3, 0], [4, 0, 0], [2, 2, 0], [0, 0, 2], [0, 0, 3]


def close(library, array, expected):
    np.testing.assert_allclose(library.numpy(array), expected, rtol=0, atol=1e-4)


def example_steps(library, **options):
    return attend_with_weights(*(library.array(a) for a in (X, W_Q, W_K, W_V)), **options)


class TestWorkedNumbers:
    """The numbers of the lecture notes, recomputed."""

    def test_i_love_ai(self, library):
        steps = example_steps(library)
        close(library, steps.query, [[1, 0], [1, 1], [2, 1]])
        close(library, steps.key, [[0, 1], [1, 0], [1, 1]])
        close(library, steps.value, [[1, 2], [0, 1], [1, 3]])
        close(library, steps.scores, [[0, 1, 1], [1, 1, 2], [1, 2, 3]])
        close(library, steps.scaled, [[0, 0.7071, 0.7071], [0.7071, 0.7071, 1.4142], [0.7071, 1.4142, 2.1213]])
        close(library, steps.weights, [[0.1978, 0.4011, 0.4011], [0.2483, 0.2483, 0.5035], [0.1400, 0.2840, 0.5760]])
        close(library, steps.context, [[0.5989, 2.0], [0.7517, 2.2552], [0.7160, 2.2920]])

    def test_causal(self, library):
        steps = example_steps(library, causal=True)
        close(library, steps.weights, [[1, 0, 0], [0.5, 0.5, 0], [0.1400, 0.2840, 0.5760]])
        close(library, steps.context, [[1, 2], [0.5, 1.5], [0.7160, 2.2920]])

    def test_two_heads(self, library):
        steps = example_steps(library, heads=2)
        close(library, steps.context, [[[0.5777], [0.5777], [0.5317]], [[2.0], [2.2670], [2.2670]]])
        close(library, steps.concat, [[0.5777, 2.0], [0.5777, 2.2670], [0.5317, 2.2670]])

    def test_source_target(self, library):
        x, source = library.array([[1, 0], [1, 1]]), library.array([[0, 1], [1, 1]])
        steps = attend_with_weights(x, *(library.array(w) for w in (W_Q, W_K, W_V)), source=source)
        close(library, steps.weights, [[0.5, 0.5], [0.3302, 0.6698]])
        close(library, steps.context, [[0.5, 2], [0.6698, 2.3395]])

    def test_six_token_example(self, library):
        x = library.array(SIX_TOKENS)
        steps = attend(x, x, x, scoring="dot")
        close(library, steps.weights[0, ...], [0.2098, 0.2006, 0.1981, 0.1242, 0.1220, 0.1452])
        close(library, steps.context[0, ...], [0.4421, 0.5931, 0.5790])
        close(library, steps.weights[1, ...], [0.1385, 0.2379, 0.2333, 0.1240, 0.1082, 0.1581])
        close(library, steps.context[1, ...], [0.4419, 0.6515, 0.5683])

    def test_scorings_of_apple_and_orange(self, library):
        x = library.array([ORANGE, PHONE, APPLE, AND, AN])
        cosine = attend(x, x, x, scoring="cosine").scores
        close(
            library,
            cosine,
            [[1, 0, 0.7071, 0, 0], [0, 1, 0.7071, 0, 0], [0.7071, 0.7071, 1, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 1, 1]],
        )
        dot, scaled = attend(x, x, x, scoring="dot").scaled, attend(x, x, x).scaled
        for query, key in ((0, 2), (3, 4)):
            close(library, dot[query, key], 6)
            close(library, scaled[query, key], 3.4641)

    def test_an_apple_and_an_orange(self, library):
        x = library.array([ORANGE, APPLE, AND, AN])
        unnormalised = attend(x, x, x, scoring="cosine", normalise="none")
        close(library, unnormalised.weights[0, ...], [1, 0.7071, 0, 0])
        over_all = attend(x, x, x, scoring="cosine").weights
        alone = [0.1345, 0.1345, 0.3655, 0.3655]
        close(library, over_all, [[0.4029, 0.3006, 0.1482, 0.1482], [0.3006, 0.4029, 0.1482, 0.1482], alone, alone])
        related = unnormalised.scores != 0
        over_related = attend(x, x, x, scoring="cosine", mask=related).weights
        close(library, over_related[0, ...], [0.5727, 0.4273, 0, 0])
        close(library, over_related[2, ...], [0, 0, 0.5, 0.5])
        by_sum = attend(x, x, x, scoring="cosine", normalise="sum").weights
        close(library, by_sum[0, ...], [0.5858, 0.4142, 0, 0])

    def test_an_apple_phone(self, library):
        x = library.array([PHONE, APPLE, AN])
        over_all = attend(x, x, x, scoring="cosine")
        close(library, over_all.weights[0, ...], [0.4730, 0.3529, 0.1740])
        close(library, over_all.weights[2, ...], [0.2119, 0.2119, 0.5761])
        related = attend(x, x, x, scoring="cosine", mask=over_all.scores != 0).weights
        close(library, related[0, ...], [0.5727, 0.4273, 0])
        close(library, related[2, ...], [0, 0, 1])


class TestSettings:
    def test_additive_scoring_is_v_tanh_of_the_sum(self, library):
        rng = np.random.default_rng(1)
        query, key, value = rng.normal(size=(2, 3)), rng.normal(size=(4, 5)), rng.normal(size=(4, 2))
        w, u, v = rng.normal(size=(3, 6)), rng.normal(size=(5, 6)), rng.normal(size=6)
        put = library.array
        steps = attend(put(query), put(key), put(value), scoring=Additive(put(w), put(u), put(v)))
        for i in range(2):
            for j in range(4):
                expected = sum(v[h] * np.tanh(query[i] @ w[:, h] + key[j] @ u[:, h]) for h in range(6))
                close(library, steps.scores[i, j], expected)
        assert steps.step("query").axes == ("query", "d_query")

    @pytest.mark.parametrize("kind", ["float32", "list"])
    def test_additive_weights_follow_the_query(self, library, kind):
        w, u, v = [[1.0], [2.0]], [[0.5], [0.25]], [3.0]
        put = (lambda values: values) if kind == "list" else (lambda values: library.array(values, "float32"))
        x = library.array(X, "float64")
        steps = attend(x, x, x, scoring=Additive(put(w), put(u), put(v)))
        assert steps.scores.dtype == x.dtype
        close(library, steps.scores[0, 0], 3 * np.tanh(1.5))

    def test_additive_runs_in_half_precision(self):
        x = torch.tensor(X, dtype=torch.float16)
        w, u, v = (torch.ones(size, dtype=torch.bfloat16) for size in ((2, 4), (2, 4), (4,)))
        steps = attend(x, x, x, scoring=Additive(w, u, v))
        assert steps.context.dtype == torch.float32
        assert steps.scores[0, 0] == pytest.approx(4 * np.tanh(2))

    def test_additive_weights_of_different_width_are_refused(self):
        with pytest.raises(InvalidInput, match="w is 2x3, u is 2x4 and v is 3: their hidden widths differ"):
            attend(X, X, X, scoring=Additive(np.ones((2, 3)), np.ones((2, 4)), np.ones(3)))
        with pytest.raises(InvalidInput, match="query is 3x2 and w is 3x3, but inner dimensions should match"):
            attend(X, X, X, scoring=Additive(np.ones((3, 3)), np.ones((2, 3)), np.ones(3)))

    def test_cosine_of_a_zero_vector_is_zero_and_so_is_its_gradient(self):
        x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
        steps = attend(x, x, x, scoring="cosine")
        torch.testing.assert_close(steps.scores, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
        steps.context.sum().backward()
        assert torch.isfinite(x.grad).all()

    @pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200])
    def test_cosine_is_scale_invariant(self, size):
        x = np.array(X) * size
        np.testing.assert_allclose(attend(x, x, X, scoring="cosine").scores, attend(X, X, X, scoring="cosine").scores)

    def test_softcap_is_a_scaled_tanh_before_the_mask(self, library):
        x = library.array(X)
        steps = attend(x, x, x, softcap=0.5, causal=True)
        close(library, steps.scaled, 0.5 * np.tanh(np.array(X) @ np.array(X).T / np.sqrt(2) / 0.5))
        assert library.numpy(steps.weights)[0].tolist() == [1, 0, 0]

    def test_values_may_have_another_width_than_keys(self, library):
        steps = attend(library.array(X), library.array(X), library.array([[1], [2], [3]]))
        assert tuple(steps.context.shape) == (3, 1)

    def test_lists_and_integers_become_float64(self):
        assert attend(X, X, X).context.dtype == np.float64
        ints = torch.tensor(X)
        assert attend(ints, ints, ints).context.dtype == torch.float64

    def test_lists_follow_the_dtype_of_arrays(self):
        x = torch.tensor(X, dtype=torch.float32)
        steps = attend(x, x, X, bias=[[0, 0, float("-inf")]], mask=[[True], [True], [False]])
        assert steps.context.dtype == torch.float32
        assert steps.weights[:, 2].tolist() == [0, 0, 0]
        assert steps.context[2].tolist() == [0, 0]

    @pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16, torch.float16, torch.bfloat16])
    def test_half_precision_is_computed_in_float32(self, half):
        x = torch.tensor(X, dtype=half) if isinstance(half, torch.dtype) else np.array(X, dtype=half)
        wide = attend(X, X, X, causal=True)
        steps = attend(x, x, x, causal=True)
        assert str(steps.context.dtype).endswith("float32")
        np.testing.assert_allclose(np.asarray(steps.context), wide.context, rtol=1e-6)

    def test_mixed_dtypes(self):
        x, wide = torch.tensor(X, dtype=torch.bfloat16), torch.tensor(X, dtype=torch.float64)
        steps = attend(x, x.float(), x, bias=wide @ wide.T)
        assert all(array.dtype == torch.float64 for array in steps.values())

    def test_key_mask_applies_to_every_query(self, library):
        steps = attend(*(library.array(X) for _ in "qkv"), mask=library.array([True, False, True], "bool"))
        assert library.numpy(steps.weights)[:, 1].tolist() == [0, 0, 0]

    def test_causal_mask_is_aligned_bottom_right(self, library):
        steps = attend(library.array(X[:1]), library.array(X), library.array(X), causal=True)
        assert np.all(library.numpy(steps.weights) > 0)
        steps = attend(library.array(X), library.array(X[:1]), library.array(X[:1]), causal=True)
        assert library.numpy(steps.weights).ravel().tolist() == [0, 0, 1]


class TestContributions:
    def test_contributions_sum_to_the_context(self, library):
        steps = example_steps(library, heads=2, causal=True)
        contributions = library.numpy(steps.contributions)
        np.testing.assert_allclose(contributions.sum(axis=-2), library.numpy(steps.context))
        assert steps.step("contributions").axes_of(steps.contributions) == ("head", "query", "key", "d_value")

    def test_with_shared_heads(self):
        rng = np.random.default_rng(0)
        q, k, v = rng.normal(size=(2, 6, 4, 8)), rng.normal(size=(2, 2, 5, 8)), rng.normal(size=(2, 2, 5, 3))
        steps = attend(q, k, v)
        assert steps.contributions.shape == (2, 6, 4, 5, 3)
        np.testing.assert_allclose(steps.contributions.sum(axis=-2), steps.context)

    def test_masked_values_contribute_nothing_even_if_nan(self):
        value = torch.tensor([[1.0], [float("nan")]], requires_grad=True)
        query = torch.ones(2, 2, requires_grad=True)
        steps = attend(query, torch.ones(2, 2), value, mask=[True, False])
        assert steps.contributions.tolist() == [[[1], [0]], [[1], [0]]]
        steps.contributions.sum().backward()
        assert torch.isfinite(query.grad).all()
        assert value.grad.tolist() == [[2], [0]]


SETTINGS = {
    "plain": {},
    "causal": {"causal": True},
    "heads": {"heads": 2},
    "output": {"heads": 2, "w_o": np.ones((4, 5))},
    "source": {"source": np.ones((4, 3)), "w_k": np.ones((3, 4)), "w_v": np.ones((3, 4)), "heads": 2},
    "shared": {"heads": 4, "w_k": np.ones((6, 2)), "w_v": np.ones((6, 4))},
    "additive": {"scoring": Additive(np.ones((4, 3)), np.ones((4, 3)), np.ones(3))},
}


class TestSteps:
    @pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
    @pytest.mark.parametrize("name", SETTINGS)
    def test_axes_match_the_arrays(self, name, batch):
        options = dict(SETTINGS[name])
        if "source" in options:
            options["source"] = np.broadcast_to(options["source"], (*batch, 4, 3))
        weights = {name: options.pop(name, np.ones((6, 4))) for name in ("w_q", "w_k", "w_v")}
        x = np.random.default_rng(0).normal(size=(*batch, 3, 6))
        steps = attend_with_weights(x, **weights, **options)
        sizes = {}
        for step, array in (*steps.step_arrays(), (steps.step("contributions"), steps.contributions)):
            axes = step.axes_of(array)
            assert len(axes) == array.ndim, step.name
            for axis, size in zip(axes, array.shape, strict=True):
                assert sizes.setdefault(axis, size) == size, f"{step.name}: {axis} is {size}, but was {sizes[axis]}"

    def test_wrong_axis_is_detected(self, monkeypatch):
        from peasy.formula import heads

        wrong = type(heads.CONCAT)("concat", heads.CONCAT.tex, heads.CONCAT.description, ("query", "d_model"))
        monkeypatch.setattr(heads, "CONCAT", wrong)
        with pytest.raises(AssertionError, match="concat: d_model is 4, but was 6"):
            self.test_axes_match_the_arrays("heads", ())

    def test_every_step_has_a_caption_and_m_only_with_a_mask(self):
        plain, causal = attend(X, X, X), attend(X, X, X, causal=True)
        for step, _ in causal.step_arrays():
            assert step.tex
            assert step.description.endswith((".", "?"))
        assert "+ M" in causal.step("weights").tex
        assert "+ M" not in plain.step("weights").tex
        assert plain.masked is plain.scaled

    def test_steps_are_a_mapping_in_order(self):
        steps = attend(X, X, X)
        assert list(steps) == ["query", "key", "value", "scores", "scaled", "masked", "weights", "context"]
        assert steps["weights"] is steps.weights
        assert "scores 3x3" in repr(steps)
        with pytest.raises(AttributeError):
            steps.scroes  # noqa: B018


NAN = float("nan")
REFUSED = {
    "unknown scoring": ({"scoring": "scaled-dott"}, 'no scoring "scaled-dott"', "Did you mean scaled-dot?"),
    "unknown normalisation": ({"normalise": "hard"}, 'no normalisation "hard"', "Known: softmax, sum, none."),
    "scale not finite": ({"scale": NAN}, "scale should be a finite number, not nan", None),
    "scale of text": ({"scale": "big"}, "scale should be a number or None, not 'big'", None),
    "softcap infinite": ({"softcap": float("inf")}, "softcap should be a finite number above 0, not inf", None),
    "softcap of zero": ({"softcap": 0}, "softcap should be a finite number above 0, not 0", None),
    "softcap true": ({"softcap": True}, "softcap should be a number or None, not True", None),
    "scale true": ({"scale": True}, "scale should be a number or None, not True", None),
    "causal of text": ({"causal": "no"}, "causal should be True or False, not 'no'", None),
    "causal of a number": ({"causal": 1}, "causal should be True or False, not 1", None),
    "window true": ({"window": True}, "window should be a whole number or a tuple", None),
    "window of truth values": ({"window": (True, 0)}, "window should be a whole number or a tuple", None),
    "softcap negative": ({"softcap": -1.0}, "softcap should be a finite number above 0, not -1.0", None),
    "mask of numbers": ({"mask": [[0, 1, 1]] * 3}, "mask has dtype int64, not bool", "as bias="),
    "mask too small": ({"mask": np.ones((2, 3), bool)}, "mask is 2x3, but the scores are 3x3", "one row per query"),
    "mask too deep": ({"mask": np.ones((2, 3, 3), bool)}, "mask is 2x3x3, but the scores are 3x3", None),
    "mask of another library": ({"mask": torch.ones(3, 3, dtype=torch.bool)}, "query .numpy., mask .torch.", "Convert"),
    "mask ragged": ({"mask": [[True], [True, False]]}, "mask has rows of different lengths", "same length"),
    "bias too wide": ({"bias": np.zeros((3, 4))}, "bias is 3x4, but the scores are 3x3", None),
    "bias of text": ({"bias": [["a", "b", "c"]]}, "bias contains something that is not a number", None),
    "window of zero": ({"window": 0}, "window should be a whole number above 0", "attends at most"),
    "window of text": ({"window": "wide"}, "window should be a whole number or a tuple", None),
    "window backwards": ({"window": (-1, 2)}, "window should be a whole number above 0", None),
}  # fmt: skip


class TestRefusals:
    @pytest.mark.parametrize("name", REFUSED)
    def test_settings(self, name):
        options, message, hint = REFUSED[name]
        x = np.array(X, dtype=float)
        with pytest.raises(InvalidInput, match=message) as error:
            attend(x, x, x, **options)
        assert hint is None or hint in error.value.hint

    def test_inner_dimensions(self):
        """Wording of the lecture notes: inner dimensions should match."""
        expected = "inner dimensions should match: 3x2 · 3x2 is not defined, 3x2 · 2x3 is"
        with pytest.raises(InvalidInput, match=expected) as error:
            attend_with_weights(X, [[1, 0], [1, 1], [0, 1]], W_K, W_V)
        assert str(error.value).startswith("x is 3x2 and w_q is 3x2")
        assert error.value.hint == "Transpose w_q."

    def test_query_and_key_of_different_width(self):
        with pytest.raises(InvalidInput, match=r"query is 3x2 and keyᵀ is 4x3.*3x2 · 4x3 is not defined, 3x2 · 2x3 is"):
            attend(X, np.ones((3, 4)), X)
        with pytest.raises(InvalidInput) as error:
            attend(X, np.ones((3, 4)), X)
        assert error.value.hint == "keyᵀ needs 2 rows."
        with pytest.raises(InvalidInput) as error:
            attend(X, np.ones((2, 4)), np.ones((2, 1)))
        assert error.value.hint == "Transpose key."
        with pytest.raises(InvalidInput) as error:
            attend(X, np.ones((2, 3)), np.ones((2, 1)))
        assert "3x2 · 3x2 is not defined, 3x2 · 2x3 is" in error.value.message

    @pytest.mark.parametrize(
        ("sizes", "message"),
        [
            (((3,), (3,), (3,)), "query has 1 axes"),
            (((1, 1, 1, 3, 2),) * 3, "query has 5 axes"),
            (((1, 3, 2), (3, 2), (3, 2)), "query is 1x3x2, key is 3x2 and value is 3x2"),
            (((3, 2), (3, 2), (4, 2)), "every key needs exactly one value"),
            (((2, 3, 2), (1, 3, 2), (1, 3, 2)), "batch sizes differ"),
            (((2, 4, 3, 2), (1, 4, 3, 2), (1, 4, 3, 2)), "batch sizes differ"),
            (((1, 5, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2)), "5 query heads cannot share 2 KV heads"),
            (((1, 4, 3, 2), (1, 0, 3, 2), (1, 0, 3, 2)), "4 query heads cannot share 0 KV heads"),
            (((3, 0), (3, 0), (3, 2)), "its vectors are empty"),
        ],
    )
    def test_sizes(self, library, sizes, message):
        with pytest.raises(InvalidInput, match=message):
            attend(*(library.array(np.ones(size)) for size in sizes))

    def test_mixed_libraries(self):
        with pytest.raises(InvalidInput, match=r"different libraries: query \(numpy\), key \(torch\), value \(numpy\)"):
            attend(np.ones((2, 2)), torch.ones(2, 2), np.ones((2, 2)))

    @pytest.mark.parametrize("bad", [[[1, 2], [3]], [[1, 2], 3], [["a"]], [[None]], [[1j]], "text", None, {}])
    def test_non_matrices_are_refused(self, bad):
        with pytest.raises(InvalidInput):
            attend(bad, X, X)

    def test_arrays_that_are_not_real_numbers(self):
        for strange in (np.ones((3, 2), complex), np.full((3, 2), "a"), np.full((3, 2), None)):
            with pytest.raises(InvalidInput, match=r"query (has dtype|contains)"):
                attend(strange, X, X)

    def test_row_sum_of_zero(self, library):
        x = library.array([[1, 0], [0, 1]])
        key = library.array([[1, 0], [-1, 0]])
        with pytest.raises(InvalidInput, match="unmasked scores of a row sum to 0") as error:
            attend(x, key, x, scoring="dot", normalise="sum")
        assert "softmax" in error.value.hint
        steps = attend(x, key, x, scoring="dot", normalise="sum", mask=library.array([[1, 0], [0, 0]], "bool"))
        assert library.numpy(steps.weights).tolist() == [[1, 0], [0, 0]]

    def test_row_sum_of_zero_up_to_rounding(self):
        assert 0.1 + 0.2 - 0.3 != 0
        with pytest.raises(InvalidInput, match="sum to 0"):
            attend([[1.0]], [[0.1], [0.2], [-0.3]], [[1.0]] * 3, scoring="dot", normalise="sum")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"heads": 3}, "A width of 2 cannot be split into 3 heads"),
            ({"heads": 0}, "heads should be a whole number above 0"),
            ({"heads": 1.5}, "heads should be a whole number, not 1.5"),
            ({"heads": 2, "w_k": np.ones((2, 3)), "w_q": np.ones((2, 4))}, "Keys of width 3 do not fit 2 query heads"),
            ({"x": [1, 0]}, "x has 1 axes"),
            ({"w_v": [1, 0]}, "w_v should be a matrix"),
            ({"source": [1, 0]}, "source should be a matrix"),
            ({"w_o": np.ones((3, 3))}, "context is 3x2 and w_o is 3x3"),
        ],
    )  # fmt: skip
    def test_with_weights(self, options, message):
        with pytest.raises(PeasyError, match=message):
            attend_with_weights(**({"x": X, "w_q": W_Q, "w_k": W_K, "w_v": W_V} | options))


def test_without_nan_safe_products_masked_nan_spreads(monkeypatch):
    """Inverse: zero times NaN is NaN, which violates the property in `test_properties.py`."""
    value = np.array([[1.0], [NAN]])
    options = {"mask": [True, False]}
    assert attend(np.ones((1, 2)), np.ones((2, 2)), value, **options).context.tolist() == [[1]]
    monkeypatch.setattr(attention, "_zero_nonfinite", lambda xp, array: (array, None))
    assert np.isnan(attend(np.ones((1, 2)), np.ones((2, 2)), value, **options).context).all()


@pytest.mark.parametrize("name", ["plain", "scale", "softcap", "mask", "bias", "masked row"])
def test_unnormalised_weights_equal_attend(library, name):
    rng = np.random.default_rng(5)
    query, key = (library.array(rng.normal(size=size)) for size in ((1, 4, 3, 2), (1, 2, 5, 2)))
    mask = rng.random((3, 5)) > 0.4
    mask[:, 0] = True
    options = {
        "plain": {}, "scale": {"scale": 0.3}, "softcap": {"softcap": 0.7},
        "mask": {"mask": library.array(mask, "bool")},
        "bias": {"bias": library.array(np.where(mask, rng.normal(size=(3, 5)), -np.inf))},
        "masked row": {"mask": library.array(mask & (np.arange(3) != 1)[:, None], "bool")},
    }  # fmt: skip
    expected = library.numpy(attend(query, key, key, **options[name]).weights)
    powers, total = unnormalised_weights(query, key, **options[name])
    np.testing.assert_array_equal(library.numpy(powers / total), expected)


def test_unnormalised_weights_ignore_masked_keys():
    key = np.array([[1.0, 0.0], [0.0, 1.0], [NAN, np.inf]])
    powers, total = unnormalised_weights(np.ones((1, 2)), key, mask=[[True, True, False]])
    assert (powers / total).tolist() == [[0.5, 0.5, 0.0]]


def test_narrow_mask_applies_to_the_last_keys(library):
    query, key = (library.array(np.random.default_rng(2).normal(size=size)) for size in ((2, 3), (5, 3)))
    powers, total = unnormalised_weights(query, key, mask=library.array(np.tri(2), "bool"), softcap=2.0)
    expected = attend(query, key, key, causal=True, softcap=2.0).weights
    np.testing.assert_allclose(library.numpy(powers / total), library.numpy(expected), atol=1e-12)


# Sinks.


def test_sink_is_one_more_key_without_a_value(library):
    """Two ways: sinks, and a key of its own whose score is the sink and whose value is zero."""
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=(2, 3, 4, 5)) for _ in range(3))
    sinks = rng.normal(size=3)
    steps = attend(*(library.array(x) for x in (query, key, value)), sinks=library.array(sinks), causal=True)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(5)
    scores = np.where(np.tril(np.ones((4, 4), bool)), scores, -np.inf)
    powers = np.exp(np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (2, 3, 4, 1))], axis=-1))
    weights = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(library.numpy(steps.weights), weights[..., :-1], atol=1e-12)
    np.testing.assert_allclose(library.numpy(steps.context), weights[..., :-1] @ value, atol=1e-12)
    powers, total = unnormalised_weights(library.array(query), library.array(key), sinks=library.array(sinks))
    unmasked = attend(*(library.array(x) for x in (query, key, value)), sinks=library.array(sinks))
    np.testing.assert_allclose(library.numpy(powers / total), library.numpy(unmasked.weights), atol=1e-12)
    assert "s" in steps.step("weights").tex
    assert "sink" in steps.step("weights").description


def test_sink_of_a_fully_masked_row_gets_everything():
    steps = attend([[1.0]], [[1.0]], [[7.0]], mask=[[False]], sinks=0.5)
    assert np.asarray(steps.weights).tolist() == [[0.0]]
    assert np.asarray(steps.context).tolist() == [[0.0]]


def test_sinks_must_be_one_number_per_head():
    query = np.ones((1, 2, 3, 4))
    with pytest.raises(InvalidInput, match="sinks"):
        attend(query, query, query, sinks=np.zeros(3))
