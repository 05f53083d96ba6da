// Import of a model from the local Hugging Face cache, after confirmation.

import { button, element, field, select } from "../element.js";

/** Import form for the models of the cache, as elements. */
export function importForm(shell, cards, onImported) {
  const cached = cards.filter(({ where, fault }) => where === "hub cache" && !fault);
  const terminalHint = "Import other models in the terminal, which asks before it downloads: peasy import FOLDER, or a Hugging Face id.";
  if (!cached.length) return [element("p", { class: "quiet" }, `The Hugging Face cache of this machine is empty. ${terminalHint}`)];
  const modelSelect = select(cached.map(({ name }) => name), cached[0].name, () => {});
  return [element("details", { class: "more" }, element("summary", {}, "Import a model from the Hugging Face cache"),
    element("div", { class: "row end" }, field("model", modelSelect), button("Import …", () => confirmImport(shell, cached.find(({ name }) => name === modelSelect.value), onImported))), element("p", { class: "quiet" }, terminalHint))];
}

function confirmImport(shell, card, onImported) {
  const nameInput = element("input", { type: "text", maxlength: 60, value: card.name.split("/").at(-1).replace(/[^\w.-]+/g, "-") });
  const errorContainer = element("div", {});
  const close = () => dialog.close();
  const copyButton = button("Copy", async () => {
    copyButton.disabled = true;
    try {
      const { result } = await shell.request("import", { model: card.name, name: nameInput.value.trim(), yes: true });
      close();
      onImported(result.name);
    } catch (error) {
      shell.showError(error, errorContainer);
      copyButton.disabled = false;
    }
  }, { class: "plain main" });
  const dialog = element("dialog", { "aria-label": "Import" }, element("h2", {}, "Import this model?"),
    element("p", {}, `${card.name} (${card.parameters.toLocaleString("en")} parameters, ${(card.bytes / 1e6).toFixed(1)} MB) will be copied into peasy's data directory. Nothing is downloaded.`),
    field("name", nameInput), errorContainer, element("div", { class: "row" }, copyButton, button("Cancel", close)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
