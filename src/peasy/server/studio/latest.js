// Requests of which only the newest counts.

/**
 * Return a function that sends a request and draws its response, unless a newer one was sent meanwhile. `busy` is
 * greyed out until then; errors are shown in `container`, or on top of the page.
 */
export function latestOnly(shell, busy, container = null) {
	let newest = 0;
	return async (send, draw) => {
		const turn = (newest += 1);
		const isNewest = () => turn === newest;
		busy.classList.add("busy");
		try {
			const response = await send();
			if (isNewest()) await draw(response);
		} catch (error) {
			if (isNewest()) shell.showError(error, container);
		} finally {
			if (isNewest()) busy.classList.remove("busy");
		}
	};
}
