"""Cost of recording every step: `peasy.attend` on NumPy against plain NumPy code that computes the same.

    python -m bench.formula [rounds]

1,024 tokens, 64 dimensions, 8 heads. `peasy.attend` may take 1.3 times as long; a missed bound is exit code 1.
"""

import math
import sys

import numpy as np

from bench.measure import alternate, machine
from peasy import attend

HEADS, TOKENS, WIDTH = 8, 1024, 64
BOUND = 1.3


def plain(query, key, value):
    scores = query @ key.swapaxes(-1, -2)
    scaled = scores / math.sqrt(WIDTH)
    exponentials = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ value


def plain_causal(query, key, value):
    scores = query @ key.swapaxes(-1, -2)
    scaled = scores / math.sqrt(WIDTH)
    masked = np.where(np.tril(np.ones((TOKENS, TOKENS), dtype=bool)), scaled, -np.inf)
    exponentials = np.exp(masked - masked.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ value


def compare(dtype, causal: bool, rounds: int) -> float:
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(1, HEADS, TOKENS, WIDTH)).astype(dtype) for _ in range(3)]
    reference = plain_causal if causal else plain
    np.testing.assert_allclose(attend(*inputs, causal=causal).context, reference(*inputs), rtol=1e-3, atol=1e-5)
    timings = alternate(rounds, plain=lambda: reference(*inputs), peasy=lambda: attend(*inputs, causal=causal))
    ratio = timings["peasy"].ratio_to(timings["plain"])
    print(f"\n{np.dtype(dtype).name}, {'causal' if causal else 'unmasked'}")
    print(*timings.values(), f"peasy takes {ratio:.2f} times as long", sep="\n")
    return ratio


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"{TOKENS} tokens, {WIDTH} dimensions, {HEADS} heads; NumPy {np.__version__}; {machine()}; {rounds} rounds")
    kinds = [(dtype, causal) for dtype in (np.float32, np.float64) for causal in (False, True)]
    worst = max(compare(*kind, rounds) for kind in kinds)
    print(f"\nworst ratio {worst:.2f}, allowed {BOUND}")
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
