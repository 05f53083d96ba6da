// Requests of which only the newest counts.

/**
 * Return a function that sends a request and draws its response, unless a newer one was sent meanwhile. `busy` is
 * greyed out until then; errors are shown in `container`, or on top of the page. Without `busy`, each call names the
 * place for both.
 */
export function latestOnly(shell, busy, container = null) {
	let newest = 0;
	return async (send, draw, place = busy) => {
		const turn = (newest += 1);
		const isNewest = () => turn === newest;
		place.classList.add("busy");
		try {
			const response = await send();
			if (isNewest()) await draw(response);
		} catch (error) {
			if (isNewest()) shell.showError(error, busy ? container : place);
		} finally {
			if (isNewest()) place.classList.remove("busy");
		}
	};
}
