"""Quality of packed weights: next-token distributions of a packed and an unpacked model at every position of a text.

    python -m bench.quality RUN text.txt [tokens]

RUN is a run or a checkpoint, for example of `peasy train gpt --data input.txt --minutes 5`; the text is one it has not
seen. Non-overlapping windows of the model's context. Printed for each packing: the mean KL divergence from the unpacked
model, how often both have the same top-1 token, and the relative error of the logits (each position's mean subtracted,
since it changes nothing). Bounds for int8: the same top-1 token at 99 % of the positions, an error of at most 4 %. A
missed bound is exit code 1.
"""

import sys
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

MIN_SAME_TOP1, MAX_ERROR = 0.99, 0.04
BOUNDED = ("int8",)


def windows(model: Any, tokenizer: Any, text: str, max_tokens: int) -> Tensor:
    ids = torch.tensor(tokenizer.encode(text).ids[:max_tokens])
    context = model.config.max_seq_len or 256
    count = len(ids) // context
    if not count:
        raise SystemExit(f"The text has {len(ids)} tokens; at least {context} are needed.")
    return ids[: count * context].view(count, context)


@torch.inference_mode()
def compare(model: Any, packed: Any, rows: Tensor) -> dict[str, float]:
    """Compare position by position; only the logits of one window are held at a time."""
    kl = same = squared_error = squared_norm = same_clear = num_clear = 0.0
    for row in rows:
        expected, actual = (each_model(row[None])[0].double() for each_model in (model, packed))
        p, q = expected.log_softmax(-1), actual.log_softmax(-1)
        kl += float((p.exp() * (p - q)).sum())
        same_top1 = expected.argmax(-1) == actual.argmax(-1)
        same += float(same_top1.sum())
        top2 = p.topk(2).values
        clear = top2[:, 0] - top2[:, 1] > 0.05  # elsewhere the model itself has nearly a tie
        num_clear, same_clear = num_clear + float(clear.sum()), same_clear + float((same_top1 & clear).sum())
        expected, actual = (logits - logits.mean(-1, keepdim=True) for logits in (expected, actual))
        squared_error += float((actual - expected).square().sum())
        squared_norm += float(expected.square().sum())
    count = rows.numel()
    error = (squared_error / squared_norm) ** 0.5
    return {"kl": kl / count, "same": same / count, "error": error, "clear": same_clear / num_clear}


def main() -> int:
    from peasy.generation.packed import pack, packing_of
    from peasy.generation.packed_numba import has_numba
    from peasy.generation.sampling_params import WeightFormat

    name, text = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8")
    max_tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 20_000
    model, tokenizer = open_run(name)
    rows = windows(model, tokenizer, text, max_tokens)
    print(f"{name}: {model.count_parameters():,} parameters; {rows.numel():,} tokens of {sys.argv[2]}")
    missed = False
    packings = [
        (kind, kernel)
        for kind in get_args(WeightFormat)[1:]
        for kernel in ((True, False) if kind in ("float32", "int8") else (False,))
    ]
    for kind, kernel in packings:
        if kernel and not has_numba():
            print(f"{kind:<12} with the kernel: not measured without numba (pip install 'peasy-attention[kernel]')")
            continue
        packed = pack(model, kind, kernel=kernel)
        scores = compare(model, packed, rows)
        print(
            f"{kind:<12} KL {scores['kl']:.2e}, same top-1 {scores['same']:.2%} (without near ties "
            f"{scores['clear']:.2%}), logits error {scores['error']:.2%}   {packing_of(packed)}"
        )
        missed |= kind in BOUNDED and (scores["same"] < MIN_SAME_TOP1 or scores["error"] > MAX_ERROR)
    return int(missed)


def open_run(name: str) -> tuple[Any, Any]:
    import peasy

    loaded = peasy.load(name)
    return loaded.model.eval(), loaded.tokenizer


if __name__ == "__main__":
    sys.exit(main())
