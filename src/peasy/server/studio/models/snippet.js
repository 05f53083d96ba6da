// Code snippets that use a model: curl, Python, OpenAI client, terminal.

/** Those of the `templates` for what the model does, with its name and the address of this studio. */
export function snippets(templates, { name, capabilities }) {
	const quoted = JSON.stringify(name);
	const json = quoted.replaceAll("'", "'\\''");
	const fields = { name, quoted, json, origin: new URL(".", location.href).href.slice(0, -1) };
	const write = (text) => text.replace(/<(\w+)>/g, (_, field) => fields[field]);
	return (templates[capabilities[0]] ?? templates.generate).map(({ title, text }) => ({ title, text: write(text) }));
}
