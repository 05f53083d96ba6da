"""Model wrapper that applies an intervention in every pass, so that loss, BLEU and generation can measure it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.edit import Edit


class Edited:
    """Wrapper with the model's interface that adds the intervention to every forward pass."""

    def __init__(self, model: Model, edit: Edit) -> None:
        self._model, self._edit = model, edit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: Tensor, **more: Any) -> Tensor:
        """Return the logits of each position, under the intervention."""
        return self._model(ids, **{**more, "edit": self._edit})

    def hidden(self, ids: Tensor, **more: Any) -> Tensor:
        """Return the final hidden states, under the intervention."""
        return self._model.hidden(ids, **{**more, "edit": self._edit})

    def start(self, batch: int = 1, **more: Any) -> Any:
        """Return a new decode state; the source is encoded under the intervention too."""
        state: Any = self._model.start(batch, **more)
        encode = getattr(self._model, "encode", None)
        if encode is not None and more.get("source") is not None:
            state.source = encode(more["source"], real=more.get("source_real"), edit=self._edit)
        return state

    def read(self, texts: Sequence[Sequence[int]], memories: Sequence[Any], **more: Any) -> list[Tensor]:
        """Run new tokens of several sequences, under the intervention."""
        return self._model.read(texts, memories, **{**more, "edit": self._edit})
