"""What seeing every step costs: `peasy.attend` on NumPy against bare NumPy lines that compute the same.

    python -m bench.formula [rounds]

1,024 tokens, 64 dimensions, 8 heads. The formula may take 1.3 times as long; if it takes longer, the exit code is 1.
"""

import math
import sys

import numpy as np

from bench.measure import alternate, machine
from peasy import attend

HEADS, TOKENS, WIDTH = 8, 1024, 64
BOUND = 1.3


def bare(query, key, value):
    scores = query @ key.swapaxes(-1, -2)
    scaled = scores / math.sqrt(WIDTH)
    powers = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ value


def bare_causal(query, key, value):
    scores = query @ key.swapaxes(-1, -2)
    scaled = scores / math.sqrt(WIDTH)
    masked = np.where(np.tril(np.ones((TOKENS, TOKENS), dtype=bool)), scaled, -np.inf)
    powers = np.exp(masked - masked.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ value


def compare(dtype, causal: bool, rounds: int) -> float:
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(1, HEADS, TOKENS, WIDTH)).astype(dtype) for _ in range(3)]
    lines = bare_causal if causal else bare
    np.testing.assert_allclose(attend(*given, causal=causal).context, lines(*given), rtol=1e-3, atol=1e-5)
    took = alternate(rounds, bare=lambda: lines(*given), peasy=lambda: attend(*given, causal=causal))
    ratio = took["peasy"].over(took["bare"])
    print(f"\n{np.dtype(dtype).name}, {'causal' if causal else 'unmasked'}")
    print(*took.values(), f"peasy takes {ratio:.2f} times as long", sep="\n")
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
