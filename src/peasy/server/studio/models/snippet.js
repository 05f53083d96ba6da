// Code snippets that use a model: curl, Python, OpenAI client, terminal.

export function snippets({ name, capabilities }) {
	const origin = new URL(".", location.href).href.slice(0, -1);
	const quoted = JSON.stringify(name);
	const inShell = (value) => `'${JSON.stringify(value).replaceAll("'", "'\\''")}'`;
	const curl = (path, body) => ({
		title: "curl",
		text:
			`curl ${origin}${path} \\\n  -H 'content-type: application/json' ` +
			`\\\n  -d ${inShell({ model: name, ...body })}`,
	});
	const client = (text) => ({
		title: "Python, OpenAI client",
		text: `from openai import OpenAI\n\nclient = OpenAI(base_url="${origin}/v1", api_key="none")\n${text}`,
	});
	const python = (expression) => ({
		title: "Python, peasy",
		text: `import peasy\n\nmodel = peasy.load(${quoted})\nprint(model.${expression})`,
	});
	const terminal = (command, rest = "") => ({ title: "Terminal", text: `peasy ${command} ${name}${rest}` });
	switch (capabilities[0]) {
		case "embed": {
			const input = ["It tasted good.", "I liked the soup."];
			const list = `["${input.join('", "')}"]`;
			return [
				curl("/v1/embeddings", { input }),
				client(
					`response = client.embeddings.create(model=${quoted}, input=${list})\nprint(len(response.data[0].embedding))`,
				),
				python(`embed(${list}).shape`),
				terminal("embed", ` "${input[0]}"`),
			];
		}
		case "translate":
			return [
				curl("/api/translate", { text: "3 days ago", num_beams: 4 }),
				python('translate("3 days ago", num_beams=4).text'),
				terminal("translate", ' "3 days ago" --num-beams 4'),
			];
		case "words":
			return [curl("/api/words", { words: ["great", "awful", "pizza"], clusters: 2 }), terminal("models")];
		default:
			return [
				curl("/v1/completions", { prompt: "The pizza", max_tokens: 20 }),
				client(
					`for chunk in client.completions.create(model=${quoted}, prompt="The pizza", max_tokens=20, stream=True):\n ` +
						`   print(chunk.choices[0].text, end="")`,
				),
				python('generate("The pizza", max_tokens=20, temperature=0.8, seed=1)'),
				terminal("generate", ' "The pizza" --max-tokens 20'),
			];
	}
}
