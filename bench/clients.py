"""Clients of the OpenAI API against a live `peasy serve`: the table of docs/clients.md.

    python -m bench.clients --python PYTHON --node FOLDER --lm-eval PYTHON

PYTHON is an interpreter with the clients of `PYTHON_CLIENTS` that are to be tried, FOLDER has the `node_modules` of
`NODE_CLIENTS`. Each client asks for a greedy text, as a whole and streamed, for an answer in a chat and for an
embedding, where it offers that; every text must be the one that peasy computes without a server. A model with a chat
template and random weights is made here, without network. lm-eval evaluates the built-in stories, through the server
and with its own backend on the exported folder; `bench.scoring` does the same with random weights.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench import llama, scoring

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"
PROMPT, QUESTION, MAX_TOKENS = "the pizza came out of", "the old cat", 12
TEMPLATE = "{% for m in messages %}{{ m.content + ' ' }}{% endfor %}"
COLUMNS = ("completion", "stream", "chat", "chat stream", "embedding")

PYTHON_CLIENTS = {
    "openai": """
import openai
client = openai.OpenAI(base_url=base, api_key="any")
same = dict(max_tokens=count, temperature=0)
out["completion"] = client.completions.create(model=model, prompt=prompt, **same).choices[0].text
parts = client.completions.create(model=model, prompt=prompt, stream=True, **same)
out["stream"] = "".join(part.choices[0].text for part in parts if part.choices)
talk = dict(model=model, messages=[{"role": "user", "content": question}], **same)
out["chat"] = client.chat.completions.create(**talk).choices[0].message.content
parts = client.chat.completions.create(stream=True, **talk)
out["chat stream"] = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
out["embedding"] = client.embeddings.create(model=encoder, input=prompt).data[0].embedding
""",
    "langchain-openai": """
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
same = dict(base_url=base, api_key="any", model=model, max_tokens=count, temperature=0)
out["completion"] = OpenAI(**same).invoke(prompt)
out["stream"] = "".join(OpenAI(**same).stream(prompt))
out["chat"] = ChatOpenAI(**same).invoke(question).content
out["chat stream"] = "".join(part.content for part in ChatOpenAI(**same).stream(question))
vectors = OpenAIEmbeddings(base_url=base, api_key="any", model=encoder, check_embedding_ctx_length=False)
out["embedding"] = vectors.embed_query(prompt)
""",
    "litellm": """
import litellm
same = dict(api_base=base, api_key="any", max_tokens=count, temperature=0)
name = f"text-completion-openai/{model}"
out["completion"] = litellm.text_completion(model=name, prompt=prompt, **same).choices[0].text
parts = litellm.text_completion(model=name, prompt=prompt, stream=True, **same)
out["stream"] = "".join(part.choices[0].text or "" for part in parts)
talk = dict(model=f"openai/{model}", messages=[{"role": "user", "content": question}], **same)
out["chat"] = litellm.completion(**talk).choices[0].message.content
out["chat stream"] = "".join(part.choices[0].delta.content or "" for part in litellm.completion(stream=True, **talk))
vectors = litellm.embedding(model=f"openai/{encoder}", input=[prompt], api_base=base, api_key="any")
out["embedding"] = vectors.data[0]["embedding"]
""",
    "llm": """
import os, pathlib, subprocess
home = pathlib.Path(os.environ["LLM_USER_PATH"])
home.mkdir(exist_ok=True)
same = f"  model_name: {model}\\n  api_base: {base}\\n"
yaml = f"- model_id: text\\n{same}  completion: true\\n- model_id: talk\\n{same}"
(home / "extra-openai-models.yaml").write_text(yaml)
def ask(name, text, *flags):
    options = ["-o", "max_tokens", str(count), "-o", "temperature", "0"]
    command = [sys.executable, "-m", "llm", "-m", name, *options, *flags, "--key", "any", text]
    return subprocess.run(command, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout
out["completion"], out["stream"] = ask("text", prompt, "--no-stream"), ask("text", prompt)
out["chat"], out["chat stream"] = ask("talk", question, "--no-stream"), ask("talk", question)
""",
}
NODE_CLIENTS = {
    "openai (npm)": (
        "openai",
        """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: base, apiKey: "any" });
const same = { max_tokens: count, temperature: 0 };
out.completion = (await client.completions.create({ model, prompt, ...same })).choices[0].text;
out.stream = "";
for await (const part of await client.completions.create({ model, prompt, stream: true, ...same }))
  out.stream += part.choices[0]?.text ?? "";
const talk = { model, messages: [{ role: "user", content: question }], ...same };
out.chat = (await client.chat.completions.create(talk)).choices[0].message.content;
out["chat stream"] = "";
for await (const part of await client.chat.completions.create({ ...talk, stream: true }))
  out["chat stream"] += part.choices[0]?.delta?.content ?? "";
out.embedding = (await client.embeddings.create({ model: encoder, input: prompt })).data[0].embedding;
""",
    ),
    "ai SDK (npm)": (
        "ai",
        """
import { generateText, streamText, embed } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
const peasy = createOpenAICompatible({ name: "peasy", baseURL: base, apiKey: "any" });
const same = { maxOutputTokens: count, temperature: 0 };
// The SDK writes a prompt as a dialogue of its own, so only chat and embedding can be compared.
out.chat = (await generateText({ model: peasy.chatModel(model), prompt: question, ...same })).text;
out["chat stream"] = "";
for await (const part of streamText({ model: peasy.chatModel(model), prompt: question, ...same }).textStream)
  out["chat stream"] += part;
out.embedding = (await embed({ model: peasy.textEmbeddingModel(encoder), value: prompt })).embedding;
""",
    ),
}
HEADER = """# Clients

<!-- Generated by `python -m bench.clients`: change the source, not this page. -->

Clients of the OpenAI API against a running `peasy serve`. ✓: the greedy text, as a whole and streamed, equals that of
`peasy.generate` without a server; an embedding equals that of `peasy.embed` to 1e-5. –: the client does not offer it,
or writes the prompt in its own way. Each needs only the base URL and any key.

"""
LM_EVAL_NOTE = """
```sh
peasy serve stories &
peasy export stories out
lm_eval --model local-completions --tasks ... \\
    --model_args model=stories,base_url=http://127.0.0.1:8000/v1/completions,tokenizer=./out,max_length=256
```

The tokenizer is that of the exported folder. lm-eval's own backend needs `add_bos_token=False` for such a folder: its
tokenizer puts `<bos>` before a text, and lm-eval would add a second one and score it.
"""


def expected_outputs(model: Path) -> dict[str, object]:
    """Return what peasy computes without a server."""
    import peasy

    loaded, encoder = peasy.load(model), peasy.load("sentences")
    options = {"max_tokens": MAX_TOKENS, "weights": "float32"}
    text = loaded.generate(PROMPT, **options).texts[0]
    asked = loaded.require_tokenizer().decode(loaded.encode_chat([{"role": "user", "content": QUESTION}]))
    answer = loaded.generate(asked, **options).texts[0]
    vector = np.asarray(encoder.embed(PROMPT)).ravel().tolist()
    return {"completion": text, "stream": text, "chat": answer, "chat stream": answer, "embedding": vector}


def run_python(python: str, name: str, values: dict[str, object], home: Path) -> tuple[str, dict[str, object]] | None:
    """Return version and outputs of a Python client; None = it is not installed."""
    asked = [python, "-c", f"import importlib.metadata as m; print(m.version({name!r}))"]
    version = subprocess.run(asked, capture_output=True, text=True, check=False)
    if version.returncode:
        return None
    lines = [f"{key} = {value!r}" for key, value in values.items()]
    code = "import json, sys\nout = {}\n" + "\n".join(lines) + PYTHON_CLIENTS[name] + "\nprint(json.dumps(out))"
    return version.stdout.strip(), _outputs([python, "-c", code], home, home)


def run_node(folder: Path, name: str, values: dict[str, object], home: Path) -> tuple[str, dict[str, object]] | None:
    """Return version and outputs of a Node client; None = it is not installed."""
    package, code = NODE_CLIENTS[name]
    manifest = folder / "node_modules" / package / "package.json"
    if not manifest.is_file():
        return None
    lines = [f"const {key} = {json.dumps(value)};" for key, value in values.items()]
    script = folder / "peasy-client.mjs"
    script.write_text("\n".join([*lines, "const out = {};", code, "console.log(JSON.stringify(out));"]))
    try:
        return json.loads(manifest.read_text())["version"], _outputs(["node", script.name], folder, home)
    finally:
        script.unlink()


def _outputs(command: list[str], folder: Path, home: Path) -> dict[str, object]:
    environment = os.environ | {"OPENAI_API_KEY": "any", "LLM_USER_PATH": str(home / "llm"), "NO_PROXY": "*"}
    environment |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:200]}
    outputs: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return outputs


def is_equal(found: object, expected: object) -> bool:
    """Return whether a text is the same, up to the line end that a command adds, or a vector close."""
    if isinstance(expected, str):
        return isinstance(found, str) and found.removesuffix("\n") == expected.removesuffix("\n")
    return isinstance(found, list) and np.allclose(found, np.asarray(expected), atol=1e-5)


def lm_eval_line(python: str, home: Path) -> tuple[str, bool]:
    """Run lm-eval on `peasy serve stories` and on the exported folder; return a sentence, and whether all agree."""
    from peasy.commands.exporting import export_model
    from peasy.datasets.stories import Stories, StoriesConfig

    folder, port, tasks = export_model("stories", home / "stories").folder, llama.free_port(), home / "tasks"
    stories = Stories(StoriesConfig(), seed=1)
    rows = [
        {
            "context": probe.prompt, "word": probe.right.split()[0], "text": probe.prompt + probe.right,
            "choices": [probe.right.strip(), probe.wrong.strip()], "answer": 0,
        }
        for probe in (stories.probe(number, "valid") for number in range(40))
    ]  # fmt: skip
    scoring.write_tasks(tasks, dict.fromkeys(scoring.TASKS, rows))
    same = f"tokenizer={folder},max_length=256"
    served = f"model=stories,base_url=http://127.0.0.1:{port}/v1/completions,num_concurrent=1,{same}"
    serve = [sys.executable, "-m", "peasy", "serve", "stories", "--port", str(port), "--weights", "float32", "-q"]
    with llama.running_server(serve, port):
        found = scoring.evaluate(python, home, tasks, "local-completions", served)
    own = f"pretrained={folder},dtype=float32,add_bos_token=False,max_length=256"
    expected = scoring.evaluate(python, home, tasks, "hf", own)
    agree = found.keys() == expected.keys() and np.allclose(
        [found[name] for name in expected], list(expected.values()), atol=scoring.TOLERANCE
    )
    version = subprocess.run(
        [python, "-c", "import importlib.metadata as m; print(m.version('lm_eval'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    scores = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
    verdict = "equal to" if agree else "different from"
    return (
        f"lm-eval {version} (`local-completions`) on `peasy serve stories`: {scores}; {verdict} its own backend.",
        agree,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--node", type=Path)
    parser.add_argument("--lm-eval", metavar="PYTHON", help="an interpreter with lm-eval, torch and transformers")
    arguments = parser.parse_args()
    rows, agree, tail = [], True, ""
    with tempfile.TemporaryDirectory() as temporary:
        home, port = Path(temporary), llama.free_port()
        model = scoring.make_model(home)
        settings = model / "tokenizer_config.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
        expected = expected_outputs(model)
        serve = [sys.executable, "-m", "peasy", "serve", str(model), "sentences", "--port", str(port), "-q"]
        values: dict[str, object] = {
            "base": f"http://127.0.0.1:{port}/v1",
            "model": "model",
            "encoder": "sentences",
            "prompt": PROMPT,
        }
        values |= {"question": QUESTION, "count": MAX_TOKENS}
        with llama.running_server([*serve, "--weights", "float32"], port):
            results = {name: run_python(arguments.python, name, values, home) for name in PYTHON_CLIENTS}
            if arguments.node is not None:
                results |= {name: run_node(arguments.node, name, values, home) for name in NODE_CLIENTS}
        if arguments.lm_eval is not None:
            line, agree = lm_eval_line(arguments.lm_eval, home)
            tail = f"\n{line}\n{LM_EVAL_NOTE}"
            print(line)
        for name, result in results.items():
            if result is None:
                print(f"{name} is not installed.")
                continue
            version, outputs = result
            if "error" in outputs:
                print(f"{name} {version}: {outputs['error']}")
            marks = [
                "–" if column not in outputs else "✓" if is_equal(outputs[column], expected[column]) else "differs"
                for column in COLUMNS
            ]
            agree &= "error" not in outputs and "differs" not in marks
            rows.append(f"| {name} | {version} | {' | '.join(marks)} |")
    table = f"| client | version | {' | '.join(COLUMNS)} |\n|{'---|' * (2 + len(COLUMNS))}\n" + "\n".join(rows) + "\n"
    print(table)
    if agree and rows:
        PAGE.write_text(HEADER + table + tail, encoding="utf-8")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main())
