"""SelfAttention of the lecture notes: worked examples, batches along any axes, steps of the formula."""

import pytest
import torch

from peasy.errors import InvalidInput
from peasy.nn import SelfAttention

X = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
W_Q, W_K, W_V = ([[1.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [0.0, 1.0]])
CONTEXT = torch.tensor([[0.5989, 2.0000], [0.7517, 2.2552], [0.7160, 2.2920]])


def example_attention(**axes) -> SelfAttention:
    attention = SelfAttention(d_model=2, **axes)
    with torch.no_grad():
        for linear, weights in ((attention.W_q, W_Q), (attention.W_k, W_K), (attention.W_v, W_V)):
            linear.weight.copy_(torch.tensor(weights).T)
    return attention


def test_by_hand():
    torch.testing.assert_close(example_attention()(X), CONTEXT, atol=1e-4, rtol=0)


def test_causal_mask():
    context = example_attention()(X, mask=torch.ones(3, 3, dtype=torch.bool).tril())
    torch.testing.assert_close(context, torch.tensor([[1.0, 2.0], [0.5, 1.5], [0.7160, 2.2920]]), atol=1e-4, rtol=0)


def test_the_projection_of_the_pizza():
    attention = SelfAttention(d_model=2, row_dim=0, col_dim=1)
    with torch.no_grad():
        attention.W_q.weight.copy_(torch.tensor([[0.78, 2.0], [0.9, 1.7]]).T)
    x = torch.tensor([[0.1, 2.13], [0.11, 2.13], [0.21, 3.13], [0.8, 0.9]])
    expected = torch.tensor([[1.995, 3.821], [2.0028, 3.841], [2.9808, 5.741], [1.434, 3.13]])
    torch.testing.assert_close(attention.W_q(x), expected)


@pytest.mark.parametrize(
    ("row_dim", "col_dim", "order"),
    [(1, 2, (0, 1, 2)), (-2, -1, (0, 1, 2)), (0, 2, (1, 0, 2)), (2, 1, (0, 2, 1)), (1, 0, (2, 1, 0))],
)
def test_batch_equals_single_sequences(row_dim, col_dim, order):
    batch = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(1))
    single = torch.stack([example_attention()(sequence) for sequence in batch])
    actual = example_attention(row_dim=row_dim, col_dim=col_dim)(batch.permute(order))
    torch.testing.assert_close(actual, single.permute(order))


def test_steps_equal_the_formula():
    steps = example_attention().steps(X)
    torch.testing.assert_close(steps.weights[0], torch.tensor([0.1978, 0.4011, 0.4011]), atol=1e-4, rtol=0)
    torch.testing.assert_close(steps.context, example_attention()(X))
    batch = torch.stack([X, X + 1])
    torch.testing.assert_close(example_attention(row_dim=1, col_dim=2).steps(batch).context[0], steps.context)


def test_gradients_reduce_the_loss():
    attention = example_attention()
    attention(X).sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in attention.parameters())
    assert [name for name, _ in attention.named_parameters()] == ["W_q.weight", "W_k.weight", "W_v.weight"]


@pytest.mark.parametrize(("row_dim", "col_dim"), [(0, 0), (0, 2), (1, -1)])
def test_invalid_axes_are_refused(row_dim, col_dim):
    with pytest.raises(InvalidInput, match="not two axes of an array with 2"):
        SelfAttention(2, row_dim, col_dim)(X)


def test_wrong_width_is_refused():
    with pytest.raises(InvalidInput, match="Tokens have 2 numbers each, d_model is 3"):
        SelfAttention(3)(X)
