// Light, dark, high contrast, or as the system says; remembered on this machine only.

export const THEMES = ["auto", "light", "dark", "contrast"];

export function chosenTheme() {
  return document.documentElement.dataset.theme ?? "auto";
}

export function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("peasy-theme", name);
  } catch {
    // Nothing may be stored here: the theme holds until the page is left.
  }
}

export function nextTheme() {
  const next = THEMES[(THEMES.indexOf(chosenTheme()) + 1) % THEMES.length];
  setTheme(next);
  return next;
}
