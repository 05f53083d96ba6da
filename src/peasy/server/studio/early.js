// Trusted types: only HTML rendered by the server is parsed (without running scripts); text never becomes a script.
/** @type {any} */ (window).trustedTypes?.createPolicy("default", { createHTML: (text) => text });

// Set the stored theme before the first paint, to avoid a flash.
try {
	const theme = localStorage.getItem("peasy-theme");
	if (["light", "dark", "contrast"].includes(theme)) document.documentElement.dataset.theme = theme;
} catch {
	// Storage is not available: use the system theme.
}
