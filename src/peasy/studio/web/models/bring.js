// Bringing in what is on this machine already: a model of the hub's cache, after asking.

import { button, element, field, select } from "../element.js";

/** What can be imported, as elements; nothing where the cache is empty. */
export function offerImports(shell, cards, done) {
  const cached = cards.filter(({ where, fault }) => where === "hub cache" && !fault);
  const how = "Models from elsewhere come in by the terminal, which asks before it downloads: peasy import FOLDER, or a Hugging Face id.";
  if (!cached.length) return [element("p", { class: "quiet" }, `The hub's cache of this machine is empty. ${how}`)];
  const chooser = select(cached.map(({ name }) => name), cached[0].name, () => {});
  return [element("details", { class: "more" }, element("summary", {}, "Import a model of the hub's cache"),
    element("div", { class: "row end" }, field("model", chooser), button("Import …", () => consent(shell, cached.find(({ name }) => name === chooser.value), done))), element("p", { class: "quiet" }, how))];
}

function consent(shell, card, done) {
  const name = element("input", { type: "text", maxlength: 60, value: card.name.split("/").at(-1).replace(/[^\w.-]+/g, "-") });
  const told = element("div", {});
  const close = () => dialog.close();
  const go = button("Copy it", async () => {
    go.disabled = true;
    try {
      const { result } = await shell.ask("import", { model: card.name, name: name.value.trim(), yes: true });
      close();
      done(result.name);
    } catch (error) {
      shell.fail(error, told);
      go.disabled = false;
    }
  }, { class: "plain main" });
  const dialog = element("dialog", { "aria-label": "Import" }, element("h2", {}, "Import this model?"),
    element("p", {}, `${card.name} (${card.parameters.toLocaleString("en")} parameters, ${(card.bytes / 1e6).toFixed(1)} MB) is copied into peasy's own folder. Nothing is downloaded.`),
    field("name", name), told, element("div", { class: "row" }, go, button("Cancel", close)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
