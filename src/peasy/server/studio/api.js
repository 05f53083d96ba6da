// Client of the server's API: one request and its response, or a request and a stream of events.

/** Error for the user: `message` is what is wrong, `hint` what to do next; `status` is that of an error response. */
export class ApiError extends Error {
	constructor(message, hint = "", status = 0, needsReload = false) {
		super(message);
		this.hint = hint;
		this.status = status;
		this.needsReload = needsReload;
	}
}

/** The server is not there. */
export function noResponse() {
	const hint = "Is peasy studio still running in its terminal? Start it again, then reload.";
	return new ApiError("The server does not respond.", hint, 0, true);
}

/** Run a command. The response is `{ok, command, schema, result, next}`, with `html` if the body has `html: true`. */
export async function request(command, body = {}, { signal } = /** @type {RequestInit} */ ({})) {
	return whileWaiting(async () => {
		const response = await send(`api/${command}`, body, signal);
		return response.json().catch((error) => {
			if (error.name === "AbortError") throw error;
			throw new ApiError("The response is not from peasy studio.", "Is another program on this port? Reload.", 0, true);
		});
	});
}

/** Like `request`, for a file instead of JSON. Returns `{blob, name}`. */
export async function fetchFile(path, body = {}, { signal } = /** @type {RequestInit} */ ({})) {
	return whileWaiting(async () => {
		const response = await send(path, body, signal);
		const fileName = /filename="?([^";]+)"?/.exec(response.headers.get("content-disposition") ?? "");
		return { blob: await response.blob(), name: fileName?.[1] ?? "peasy" };
	});
}

/**
 * Send a request and receive server-sent events as {event, data}. Resolves when the stream ends.
 * Abort to stop: the server notices the closed connection and stops working.
 * @param {string} path
 * @param {object} body
 * @param {(event: { event: string, data: any }) => void} onEvent
 * @param {{ signal?: AbortSignal }} [options]
 */
export async function stream(path, body, onEvent, { signal } = {}) {
	// A stream counts as waiting only until it opens: a training run streams for minutes, and the page stays usable.
	const response = await whileWaiting(() => send(path, body, signal, "text/event-stream"));
	const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
	let rest = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) break;
		const parts = (rest + value.replaceAll("\r\n", "\n")).split("\n\n");
		rest = parts.pop();
		for (const part of parts) parseEvent(part, onEvent);
	}
	if (rest.trim()) parseEvent(rest, onEvent);
}

function parseEvent(text, onEvent) {
	let event = "message";
	const lines = [];
	for (const line of text.split("\n")) {
		if (line.startsWith("event:")) event = line.slice(6).trim();
		else if (line.startsWith("data:")) lines.push(line.slice(5).replace(/^ /, ""));
	}
	if (!lines.length || lines[0] === "[DONE]") return;
	const data = JSON.parse(lines.join("\n"));
	if (event === "error") throw apiError(data, 200);
	onEvent({ event, data });
}

// The number of open requests, in `data-waiting` of the root element; a request is open until its whole body is read.
export async function whileWaiting(work) {
	const count = (change) => {
		const numOpen = Number(document.documentElement.dataset.waiting ?? 0) + change;
		document.documentElement.dataset.waiting = String(numOpen);
		document.getElementById("place")?.setAttribute("aria-busy", String(numOpen > 0));
	};
	count(1);
	try {
		return await work();
	} finally {
		count(-1);
	}
}

async function send(path, body, signal, accept = "application/json") {
	let response;
	try {
		const headers = { "content-type": "application/json", accept };
		response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw noResponse();
	}
	if (response.ok) return response;
	const content = await response.json().catch(() => ({}));
	const error = apiError(content.error ?? content, response.status);
	// After a restart of the server the page's token is unknown: a new page gets a new one.
	error.needsReload = response.status === 403 || response.status >= 500 || !content.error;
	throw error;
}

function apiError(error, status) {
	const hint = "If it happens again after a reload, see the terminal in which peasy studio runs.";
	return new ApiError(error?.message ?? `The server responded with status ${status}.`, error?.hint ?? hint, status);
}
