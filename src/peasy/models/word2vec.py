"""Word embedding model (word2vec): next word from the mean of the last words, or skip-gram."""

from torch import Tensor, nn

from peasy.models.config import Word2VecConfig
from peasy.models.protocol import Model, ModelInputs
from peasy.models.token_window import TokenWindow, extend_window, sliding_windows
from peasy.models.transformer import check_token_ids
from peasy.nn import config as nn_config
from peasy.nn.lm_head import LMHead
from peasy.nn.module_path import ModulePath
from peasy.nn.tap import record_step


class Word2VecModel(Model[TokenWindow]):
    """Word2vec: the mean vector of the last words predicts the next word.

    With the task "skip-gram" a word predicts any of its neighbours.
    """

    config: Word2VecConfig

    def __init__(self, config: Word2VecConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.lm_head = LMHead(config.vocab_size, config.d_model, nn_config.LMHeadConfig(tied=False))

    @property
    def window(self) -> int:
        """Number of words from which the next one is predicted."""
        return self.config.window if self.config.task == "next" else 1

    def _new_state(self, capacity: int, source: Tensor | None, source_padding_mask: Tensor | None) -> TokenWindow:
        return TokenWindow(size=self.window - 1)

    def _hidden(self, ids: Tensor, inputs: ModelInputs[TokenWindow]) -> Tensor:
        """Return the mean vector of the last words up to each token."""
        check_token_ids(ids, self.config.vocab_size)
        new = ids.shape[1]
        ids, padding_mask = extend_window(inputs.cache, ids, inputs.padding_mask)
        words, mask = sliding_windows(ids, padding_mask, self.window)
        words, weight = words[:, -new:], mask[:, -new:, :, None].to(self.embedding.weight.dtype)
        x = (self.embedding(words) * weight).sum(dim=2) / weight.sum(dim=2).clamp(min=1)
        record_step(inputs.tap, ModulePath("words", 0, "stream"), "residual", x)
        return x

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return the logits of the next word, or of any neighbour."""
        return self.lm_head(hidden_states, self.embedding.weight)
