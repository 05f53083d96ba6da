// The way to the server: one question, one answer; or a question and a stream of events.

/** What the server refused, in words: `message` what is wrong, `hint` what to do next. */
export class Refusal extends Error {
  constructor(message, hint = "", code = "", status = 0) {
    super(message);
    this.hint = hint;
    this.code = code;
    this.status = status;
  }
}

/**
 * Ask a verb. The answer is `{ok, command, schema, result, next}`, with `html` if the body has `html: true`.
 * @param {string} verb such as "explain"
 * @param {object} body the arguments of the workbench function
 * @param {{signal?: AbortSignal}} [how]
 */
export async function ask(verb, body = {}, { signal } = {}) {
  const response = await send(`/api/${verb}`, body, signal);
  const answer = await response.json();
  if (answer.ok === false) throw refusalOf(answer.error, response.status);
  return answer;
}

/** The same as `ask` for what is not JSON: a file to save. Gives `{blob, name}`. */
export async function fetchFile(path, body = {}, { signal } = {}) {
  const response = await send(path, body, signal);
  const named = /filename="?([^";]+)"?/.exec(response.headers.get("content-disposition") ?? "");
  return { blob: await response.blob(), name: named?.[1] ?? "peasy" };
}

/**
 * Ask and hear events as they come (server-sent events over POST). Resolves when the stream ends.
 * Stopping is aborting: the server sees the closed connection and stops working.
 * @param {string} path such as "/api/generate/stream"
 * @param {(event: {event: string, data: any}) => void} onEvent
 */
export async function stream(path, body, onEvent, { signal } = {}) {
  const response = await send(path, body, signal, "text/event-stream");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
    rest = parts.pop();
    for (const part of parts) hear(part, onEvent);
  }
  if (rest.trim()) hear(rest, onEvent);
}

function hear(part, onEvent) {
  let event = "message";
  const lines = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) lines.push(line.slice(5).replace(/^ /, ""));
  }
  if (!lines.length || lines[0] === "[DONE]") return;
  const data = JSON.parse(lines.join("\n"));
  if (event === "error" || data.ok === false) throw refusalOf(data.error ?? data, 200);
  onEvent({ event, data });
}

// How many questions are open, for a sign of work on the page and for who tests it.
function waits(change) {
  const open = Number(document.documentElement.dataset.waiting ?? 0) + change;
  document.documentElement.dataset.waiting = open;
  document.getElementById("place")?.setAttribute("aria-busy", String(open > 0));
}

async function send(path, body, signal, accept = "application/json") {
  let response;
  waits(1);
  try {
    const headers = { "content-type": "application/json", accept };
    response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The server does not answer.", "Is peasy studio still running in its terminal? Start it again, then reload.");
  } finally {
    waits(-1);
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  throw refusalOf(said.error ?? said, response.status);
}

function refusalOf(error, status) {
  const message = error?.message ?? `The server answered with ${status}.`;
  return new Refusal(message, error?.hint ?? "", error?.code ?? "", status);
}
