// Requests of which only the newest counts.

import { whileWaiting } from "./api.js";

const PAUSE = 60; // milliseconds without a newer request: a key that is held asks for its last cell, not for each

/**
 * Return a function that sends a request and draws its response. A newer one aborts it, and is sent after a pause
 * without further ones; `send` gets the options of its request. `busy` is greyed out until then; errors are shown in
 * `container`, or on top of the page. Without `busy`, each call names the place for both.
 */
export function latestOnly(shell, busy, container = null) {
	let newest = new AbortController();
	let isOpen = false;
	return async (send, draw, place = busy) => {
		newest.abort();
		const { signal } = (newest = new AbortController());
		place.classList.add("busy");
		if (isOpen) await whileWaiting(() => new Promise((resolve) => setTimeout(resolve, PAUSE)));
		if (signal.aborted) return;
		isOpen = true;
		try {
			const response = await send({ signal: AbortSignal.any([signal, shell.signal]) });
			if (!signal.aborted) await draw(response);
		} catch (error) {
			if (!signal.aborted) shell.showError(error, busy ? container : place);
		} finally {
			if (!signal.aborted) {
				place.classList.remove("busy");
				isOpen = false;
			}
		}
	};
}
