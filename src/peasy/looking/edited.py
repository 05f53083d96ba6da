"""A model under an edit: the same model to everybody who runs it, so that loss, BLEU and texts show what it does."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from peasy.models.protocol import Model
from peasy.nn.edit import Edit


class Edited:
    """Passes everything on to the model, with the edit; whatever it does not know, the model answers."""

    def __init__(self, model: Model, edit: Edit) -> None:
        self._model, self._edit = model, edit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, ids: Tensor, **more: Any) -> Tensor:
        """Scores of what comes after each token, under the edit."""
        return self._model(ids, **{**more, "edit": self._edit})

    def hidden(self, ids: Tensor, **more: Any) -> Tensor:
        """The last vector of every token, under the edit."""
        return self._model.hidden(ids, **{**more, "edit": self._edit})

    def start(self, batch: int = 1, **more: Any) -> Any:
        """A memory; the source is read under the edit too."""
        memory: Any = self._model.start(batch, **more)
        encode = getattr(self._model, "encode", None)
        if encode is not None and more.get("source") is not None:
            memory.source = encode(more["source"], real=more.get("source_real"), edit=self._edit)
        return memory

    def read(self, texts: Sequence[Sequence[int]], memories: Sequence[Any], **more: Any) -> list[Tensor]:
        """New tokens of several texts, under the edit."""
        return self._model.read(texts, memories, **{**more, "edit": self._edit})
