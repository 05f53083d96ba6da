"""Scores of lm-eval through peasy's server (`local-completions`) against its own `hf` backend, on the same weights.

    LM_EVAL_PYTHON=lm-eval/bin/python python -m bench.scoring

lm-eval (with torch, transformers and its extra `api`) is installed in an environment of its own, whose Python is named
by LM_EVAL_PYTHON. Weights, tokenizer and three tasks are made here, without network: log-likelihood of a last word,
multiple choice, perplexity of documents. Every metric must be equal to 1e-3; another result is exit code 1.
"""

import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import llama

WORDS = [
    "the",
    "a",
    "pizza",
    "oven",
    "cat",
    "mat",
    "bird",
    "tree",
    "town",
    "old",
    "good",
    "came",
    "out",
    "of",
    "and",
    "it",
]
TOLERANCE = 1e-3
TASKS = {
    "last_word": {
        "output_type": "loglikelihood", "doc_to_text": "{{context}}", "doc_to_target": " {{word}}",
        "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
    },
    "choices": {
        "output_type": "multiple_choice", "doc_to_text": "{{context}}", "doc_to_target": "{{answer}}",
        "doc_to_choice": "{{choices}}", "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "documents": {
        "output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}, {"metric": "bits_per_byte"}],
    },
}  # fmt: skip


def make_model(folder: Path) -> Path:
    """Write a GPT-2 of random weights, far from uniform, with its tokenizer."""
    from peasy.checkpoint.huggingface import write_folder
    from peasy.models.build import build
    from peasy.models.preset import preset
    from peasy.tokenization import train_tokenizer

    rng = random.Random(1)
    tokenizer = train_tokenizer([" ".join(rng.choices(WORDS, k=12)) for _ in range(200)], "bpe", 400)
    shape = {"num_layers": 3, "attention": {"num_heads": 4}, "feedforward": {"d_ff": 256}}
    config = preset("gpt2", vocab_size=len(tokenizer), d_model=64, max_seq_len=256, stack=shape)
    tensors = {
        name: 4 * tensor if tensor.dim() > 1 else tensor for name, tensor in build(config, seed=2).state_dict().items()
    }
    return write_folder(folder / "model", config, tensors, tokenizer)


def make_tasks(folder: Path, rng: random.Random) -> Path:
    """Write the tasks with random documents."""
    rows = {}
    for name in TASKS:
        sentences = [rng.choices(WORDS, k=rng.randint(4, 25)) for _ in range(40)]
        rows[name] = [
            {
                "context": " ".join(words[:-1]), "word": words[-1], "text": " ".join(words * 12), "answer": 1,
                "choices": [" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(4)],
            }
            for words in sentences
        ]  # fmt: skip
    return write_tasks(folder / "tasks", rows)


def write_tasks(folder: Path, rows: Mapping[str, Sequence[object]]) -> Path:
    """Write the tasks and their documents, by name."""
    folder.mkdir()
    for name, task in TASKS.items():
        data = folder / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in rows[name]), encoding="utf-8")
        source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(data)}}, "test_split": "test"}
        (folder / f"{name}.yaml").write_text(json.dumps({"task": name} | source | task), encoding="utf-8")
    return folder


def evaluate(python: str, folder: Path, tasks: Path, model: str, arguments: str) -> dict[str, float]:
    """Run lm-eval; return its metrics by task and name."""
    output = folder / f"results-{model}"
    command = [
        python, "-m", "lm_eval", "--model", model, "--model_args", arguments, "--include_path", str(tasks),
        "--tasks", ",".join(TASKS), "--output_path", str(output), "--batch_size", "4", "--device", "cpu",
    ]  # fmt: skip
    offline = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "OPENAI_API_KEY": "any",
        "HF_HOME": str(folder / "hf"),
    }
    done = subprocess.run(command, env=os.environ | offline, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"lm-eval ended with {done.returncode}:\n{done.stderr[-3000:]}")
    (result,) = output.rglob("results*.json")
    metrics = json.loads(result.read_text())["results"]
    return {
        f"{task} {name.partition(',')[0]}": value
        for task, values in metrics.items() for name, value in values.items()
        if isinstance(value, float) and "stderr" not in name
    }  # fmt: skip


def main() -> int:
    python = os.environ.get("LM_EVAL_PYTHON")
    if python is None:
        print("lm-eval was not compared: set LM_EVAL_PYTHON to the Python of an environment that has it.")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder, port = Path(temporary), llama.free_port()
        model, tasks = make_model(folder), make_tasks(folder, random.Random(3))
        expected = evaluate(python, folder, tasks, "hf", f"pretrained={model},dtype=float32,max_length=128")
        serve = [sys.executable, "-m", "peasy", "serve", str(model), "--port", str(port), "--weights", "float32", "-q"]
        with llama.running_server(serve, port):
            # lm-eval keeps a place each for the generated token and for the context of a document's next window.
            base = f"model=model,base_url=http://127.0.0.1:{port}/v1/completions,tokenizer={model},max_length=130"
            options = "tokenizer_backend=huggingface,tokenized_requests=True,num_concurrent=2"
            found = evaluate(python, folder, tasks, "local-completions", f"{base},{options}")
    agree = expected.keys() == found.keys() and len(expected) >= 6
    for name, value in expected.items():
        same = math.isclose(value, found.get(name, math.nan), rel_tol=TOLERANCE, abs_tol=TOLERANCE)
        agree &= same
        print(f"{name:<28} hf {value:14.6f}   peasy {found.get(name, math.nan):14.6f}   {'' if same else 'differs'}")
    print("All metrics are equal." if agree else "lm-eval's results differ.")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
