"""Array libraries the formula runs on, with conversion in and out."""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch


@dataclass(frozen=True)
class Library:
    name: str
    module: ModuleType

    def array(self, numbers: Any, dtype: str = "float64") -> Any:
        if dtype == "bool":
            return self.module.asarray(np.asarray(numbers, dtype=bool))
        return self.module.asarray(np.asarray(numbers, dtype=dtype))

    def owns(self, array: Any) -> bool:
        return isinstance(array, np.generic if self.name == "numpy" and not np.ndim(array) else type(self.array([0.0])))

    def numpy(self, array: Any) -> np.ndarray:
        assert self.owns(array), f"{type(array)} does not come from {self.name}"
        return np.asarray(array)


@pytest.fixture(params=["numpy", "torch", "strict"])
def library(request):
    """NumPy, torch and array-api-strict without data-dependent shapes."""
    module = {"numpy": np, "torch": torch, "strict": array_api_strict}[request.param]
    with array_api_strict.ArrayAPIStrictFlags(boolean_indexing=False, data_dependent_shapes=False):
        yield Library(request.param, module)
