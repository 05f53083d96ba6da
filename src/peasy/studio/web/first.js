// Text is never made a script. HTML is: what the server has drawn, parsed without running anything.
window.trustedTypes?.createPolicy("default", { createHTML: (text) => text });

// Before the first paint: the theme that was chosen last, so that nothing flashes.
try {
  const chosen = localStorage.getItem("peasy-theme");
  if (["light", "dark", "contrast"].includes(chosen)) document.documentElement.dataset.theme = chosen;
} catch {
  // Where nothing may be stored, the system's theme holds.
}
