// How to ask a model from a terminal, from Python, and from any client of the OpenAI API.

/** @param {{name: string, is: string}} card */
export function snippets({ name, is }) {
  const at = location.origin;
  const quoted = JSON.stringify(name);
  const shell = (path, body) => `curl ${at}${path} \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const client = `from openai import OpenAI\n\nclient = OpenAI(base_url="${at}/v1", api_key="none")\n`;
  if (is === "encoder") {
    return [
      { title: "curl", text: shell("/v1/embeddings", { model: name, input: ["It tasted good.", "I liked the soup."] }) },
      { title: "Python, the openai client", text: `${client}found = client.embeddings.create(model=${quoted}, input=["It tasted good.", "I liked the soup."])\nprint(len(found.data[0].embedding))` },
      { title: "Python, peasy", text: `import peasy\n\nm = peasy.load(${quoted})\nprint(m.embed(["It tasted good.", "I liked the soup."]).shape)` },
      { title: "Terminal", text: `peasy embed ${name} "It tasted good."` },
    ];
  }
  if (is === "encoder-decoder" || is === "recurrent-translator") {
    return [
      { title: "curl", text: shell("/api/translate", { model: name, text: "3 days ago", beam: 4 }) },
      { title: "Python, peasy", text: `import peasy\n\nm = peasy.load(${quoted})\nprint(m.translate("3 days ago", beam=4).text)` },
      { title: "Terminal", text: `peasy translate ${name} "3 days ago" --beam 4` },
    ];
  }
  if (is === "words") {
    return [
      { title: "curl", text: shell("/api/words", { model: name, words: ["great", "awful", "pizza"], clusters: 2 }) },
      { title: "Terminal", text: `peasy models ${name}` },
    ];
  }
  return [
    { title: "curl", text: shell("/v1/completions", { model: name, prompt: "The pizza", max_tokens: 20 }) },
    { title: "Python, the openai client", text: `${client}for piece in client.completions.create(model=${quoted}, prompt="The pizza", max_tokens=20, stream=True):\n    print(piece.choices[0].text, end="")` },
    { title: "Python, peasy", text: `import peasy\n\nm = peasy.load(${quoted})\nprint(m.generate("The pizza", max_tokens=20, temperature=0.8, seed=1))` },
    { title: "Terminal", text: `peasy generate ${name} "The pizza" --max-tokens 20` },
  ];
}
