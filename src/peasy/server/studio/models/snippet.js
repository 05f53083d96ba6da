// Code snippets that use a model: curl, Python, OpenAI client, terminal.

/** @param {{name: string, is: string}} card */
export function snippets({ name, is }) {
  const { origin } = location;
  const quoted = JSON.stringify(name);
  const curl = (path, body) => `curl ${origin}${path} \\\n  -H 'content-type: application/json' \\\n  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`;
  const client = `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key="none")\n`;
  if (is === "encoder") {
    return [
      { title: "curl", text: curl("/v1/embeddings", { model: name, input: ["It tasted good.", "I liked the soup."] }) },
      { title: "Python, OpenAI client", text: `${client}response = client.embeddings.create(model=${quoted}, input=["It tasted good.", "I liked the soup."])\nprint(len(response.data[0].embedding))` },
      { title: "Python, peasy", text: `import peasy\n\nmodel = peasy.load(${quoted})\nprint(model.embed(["It tasted good.", "I liked the soup."]).shape)` },
      { title: "Terminal", text: `peasy embed ${name} "It tasted good."` },
    ];
  }
  if (is === "encoder-decoder" || is === "recurrent-translator") {
    return [
      { title: "curl", text: curl("/api/translate", { model: name, text: "3 days ago", beam: 4 }) },
      { title: "Python, peasy", text: `import peasy\n\nmodel = peasy.load(${quoted})\nprint(model.translate("3 days ago", beam=4).text)` },
      { title: "Terminal", text: `peasy translate ${name} "3 days ago" --beam 4` },
    ];
  }
  if (is === "words") {
    return [
      { title: "curl", text: curl("/api/words", { model: name, words: ["great", "awful", "pizza"], clusters: 2 }) },
      { title: "Terminal", text: `peasy models ${name}` },
    ];
  }
  return [
    { title: "curl", text: curl("/v1/completions", { model: name, prompt: "The pizza", max_tokens: 20 }) },
    { title: "Python, OpenAI client", text: `${client}for chunk in client.completions.create(model=${quoted}, prompt="The pizza", max_tokens=20, stream=True):\n    print(chunk.choices[0].text, end="")` },
    { title: "Python, peasy", text: `import peasy\n\nmodel = peasy.load(${quoted})\nprint(model.generate("The pizza", max_tokens=20, temperature=0.8, seed=1))` },
    { title: "Terminal", text: `peasy generate ${name} "The pizza" --max-tokens 20` },
  ];
}
