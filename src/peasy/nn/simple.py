"""Self-attention as in the lecture notes: W_q, W_k, W_v and no output projection."""

import torch
from torch import Tensor, nn

from peasy.errors import InvalidInput
from peasy.formula import AttentionSteps
from peasy.formula.heads import attend_with_weights
from peasy.nn.attention_backends import FUSED
from peasy.nn.capture import AttentionInputs
from peasy.nn.mask import AttentionMask


class SelfAttention(nn.Module):
    """softmax(QKᵀ/√d_k + M)V with learned W_q, W_k, W_v and no bias.

    `row_dim` is the axis of the tokens, `col_dim` that of their numbers: 0 and 1 for one sequence,
    1 and 2 for a batch.

    >>> _ = torch.manual_seed(42)
    >>> attention = SelfAttention(d_model=2, row_dim=0, col_dim=1)
    >>> attention(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).shape
    torch.Size([3, 2])
    >>> SelfAttention(d_model=2, row_dim=1, col_dim=2)(torch.ones(5, 3, 2)).shape
    torch.Size([5, 3, 2])
    """

    def __init__(self, d_model: int = 2, row_dim: int = 0, col_dim: int = 1) -> None:
        super().__init__()
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.d_model, self.row_dim, self.col_dim = d_model, row_dim, col_dim

    def forward(self, token_encodings: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the context of every token; `mask` `[row, row]` is boolean, True = may attend."""
        x, shape = self._as_batch(token_encodings)
        query, key, value = (linear(x)[:, None] for linear in (self.W_q, self.W_k, self.W_v))
        visible = AttentionMask(None if mask is None else mask[None, None])
        context = FUSED.run(AttentionInputs(query, key, value, visible, self.d_model**-0.5))[:, 0]
        return context.reshape(shape).movedim((-2, -1), (self.row_dim, self.col_dim))

    def steps(self, token_encodings: Tensor, mask: Tensor | None = None) -> AttentionSteps:
        """Compute all steps by the formula: `[row, column]`, or with a batch axis first."""
        x, shape = self._as_batch(token_encodings)
        weights = (self.W_q.weight.T, self.W_k.weight.T, self.W_v.weight.T)
        return attend_with_weights(x[0] if len(shape) == 2 else x, *weights, mask=mask)

    def _as_batch(self, x: Tensor) -> tuple[Tensor, torch.Size]:
        axes = {axis % x.ndim for axis in (self.row_dim, self.col_dim) if -x.ndim <= axis < x.ndim}
        if len(axes) < 2:
            message = f"row_dim {self.row_dim} and col_dim {self.col_dim} are not two axes of an array with {x.ndim}."
            hint = "Use row_dim=0, col_dim=1 for one sequence and row_dim=1, col_dim=2 for a batch."
            raise InvalidInput(message, hint=hint)
        x = x.movedim((self.row_dim, self.col_dim), (-2, -1))
        if x.shape[-1] != self.d_model:
            raise InvalidInput(f"Tokens have {x.shape[-1]} numbers each, d_model is {self.d_model}.")
        return x.reshape(-1, *x.shape[-2:]), x.shape
