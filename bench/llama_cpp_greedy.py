"""Greedy decoding of GGUF files by llama.cpp (package xllamacpp): JSON lines in, text out.

In: one JSON object per line, {"file": "model.gguf", "prompt": [ids], "max_tokens": n}.
Out: {"text": ...} or {"error": ...}.
It runs in an environment of its own, because llama.cpp and torch need not be installed together.
"""

import json
import sys

import xllamacpp


def greedy(file: str, prompt: list[int], max_tokens: int) -> str:
    """Return the text that llama.cpp appends to a prompt."""
    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx, params.warmup, params.n_parallel = 64, False, 1
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32  # default: f16
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    request = {"prompt": prompt, "n_predict": max_tokens, "temperature": 0.0, "ignore_eos": True}
    answer = xllamacpp.Server(params).handle_completions(request)
    if "choices" not in answer:
        raise RuntimeError(json.dumps(answer)[:300])
    return str(answer["choices"][0]["text"])


def main() -> None:
    """Answer each request."""
    for line in sys.stdin:
        try:
            answer: dict[str, object] = {"text": greedy(**json.loads(line))}
        except Exception as error:  # reported in the table
            answer = {"error": str(error)[:200]}
        print("answer:" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
