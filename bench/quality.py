"""How near packed weights stay to a trained model: every place of a text, next-token distributions side by side.

    python -m bench.quality RUN text.txt [tokens]

RUN is a run or a checkpoint, for example of `peasy train gpt --data input.txt --minutes 5`; the text is one it has not
seen. Windows of the model's context that do not overlap. Printed for each packing: the mean KL divergence from the
unpacked model, how often both name the same best token, and the relative error of the logits (each place's mean
taken off, since it changes nothing). For int8 it is promised: the same best token at 99 % of the places, an error of
at most 4 %. A broken bound is exit code 1.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SAME, NEAR = 0.99, 0.04
PROMISED = ("int8",)


def windows(model: Any, tokenizer: Any, text: str, most: int) -> Tensor:
    ids = torch.tensor(tokenizer.encode(text).ids[:most])
    context = model.config.context or 256
    count = len(ids) // context
    if not count:
        raise SystemExit(f"The text has {len(ids)} tokens; at least {context} are needed.")
    return ids[: count * context].view(count, context)


@torch.inference_mode()
def compare(model: Any, packed: Any, rows: Tensor) -> dict[str, float]:
    """Sums over all places, window by window, so that no more than one window's logits are held."""
    kl = same = wrong = size = same_sure = sure = 0.0
    for row in rows:
        expected, found = (each(row[None])[0].double() for each in (model, packed))
        own, other = expected.log_softmax(-1), found.log_softmax(-1)
        kl += float((own.exp() * (own - other)).sum())
        agree = expected.argmax(-1) == found.argmax(-1)
        same += float(agree.sum())
        two = own.topk(2).values
        clear = two[:, 0] - two[:, 1] > 0.05  # elsewhere two tokens are as good as equal for the model itself
        sure, same_sure = sure + float(clear.sum()), same_sure + float((agree & clear).sum())
        expected, found = (each - each.mean(-1, keepdim=True) for each in (expected, found))
        wrong, size = wrong + float((found - expected).square().sum()), size + float(expected.square().sum())
    places = rows.numel()
    return {"kl": kl / places, "same": same / places, "error": (wrong / size) ** 0.5, "clear": same_sure / sure}


def main() -> int:
    from peasy.generation.packed import PACKING_KINDS, pack, packing_of
    from peasy.generation.packed_numba import has_numba

    name, text, most = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8"), int((*sys.argv[3:], 20_000)[0])
    model, tokenizer = open_run(name)
    rows = windows(model, tokenizer, text, most)
    print(f"{name}: {model.count_parameters():,} parameters; {rows.numel():,} tokens of {sys.argv[2]}")
    broken = False
    ways = [
        (kind, kernel)
        for kind in PACKING_KINDS[1:]
        for kernel in ((True, False) if kind in ("float32", "int8") else (False,))
    ]
    for kind, kernel in ways:
        if kernel and not has_numba():
            print(f"{kind:<12} by the kernel: not measured, numba is not installed (pip install 'peasy[kernel]')")
            continue
        packed = pack(model, kind, kernel=kernel)  # type: ignore[arg-type]
        found = compare(model, packed, rows)
        print(
            f"{kind:<12} KL {found['kl']:.2e}, same best {found['same']:.2%} (where the lead is clear "
            f"{found['clear']:.2%}), logits off by {found['error']:.2%}   {packing_of(packed).summary()}"
        )
        broken |= kind in PROMISED and (found["same"] < SAME or found["error"] > NEAR)
    return int(broken)


def open_run(name: str) -> tuple[Any, Any]:
    import peasy

    loaded = peasy.load(name)
    return loaded.model.eval(), loaded.tokenizer


if __name__ == "__main__":
    sys.exit(main())
