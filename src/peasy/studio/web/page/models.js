// Models: what is here, what each is made of, proof on one's own texts, and how to ask it from elsewhere.

import { drawing } from "../draw.js";
import { button, element, field } from "../element.js";
import { offerImports } from "../models/bring.js";
import { snippets } from "../models/snippet.js";
import { tabs } from "../tabs.js";

export const page = { name: "models", title: "Models", letter: "o" };

const PAGES = { decoder: [["look", "Look into it"], ["generate", "Let it write"]], "encoder-decoder": [["look", "Look into it"]], encoder: [["meaning", "Map texts with it"], ["look", "Look into it"]], words: [["meaning", "See its words"]] };

export async function open(place, state, shell) {
  const view = new View(place, shell);
  await view.start(state);
  return () => {};
}

class View {
  constructor(place, shell) {
    Object.assign(this, { shell });
    this.list = element("div", { class: "list" });
    this.detail = element("section", { "aria-label": "Model" });
    this.bring = element("div", {});
    place.append(element("h1", {}, "Models"), element("p", { class: "lead" }, "All that can be named without a download: built in, trained here, imported, or in the hub's cache of this machine."), this.list, this.bring, this.detail);
    shell.exports(() => (this.tab === "prove" && this.proved ? { verb: "prove", body: this.proved } : { verb: "models", body: this.name ? { name: this.name } : {} }));
    shell.copies(() => (this.card ? snippets(this.card).map(({ title, text }) => ({ label: title, text })) : []));
    shell.onState((next) => this.show(next));
  }

  async start(state) {
    await this.load();
    await this.show(state);
  }

  async load() {
    this.cards = (await this.shell.ask("models", {})).result.models;
    this.drawList();
    this.bring.replaceChildren(...offerImports(this.shell, this.cards, async (name) => {
      await this.load();
      this.choose(name);
    }));
  }

  drawList() {
    if (!this.cards.length) return this.list.replaceChildren(element("p", { class: "quiet" }, "No models yet: train one, or in a terminal: peasy import FOLDER."));
    const head = ["name", "where", "is", "parameters", "weights"].map((name) => element("th", { scope: "col" }, name));
    const body = this.cards.map((card) => element("tr", { "aria-current": card.name === this.name ? "true" : null },
      element("td", { class: "word" }, button(card.name, () => this.choose(card.name), { class: "linkish" })), element("td", { class: "word" }, card.where),
      element("td", { class: "word" }, card.fault ? `cannot be used: ${card.fault}` : card.is), element("td", {}, card.fault ? "" : card.parameters.toLocaleString("en")), element("td", {}, card.fault ? "" : size(card.bytes))));
    return this.list.replaceChildren(element("figure", { class: "table", tabindex: 0 }, element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, body))));
  }

  choose(name) {
    this.shell.set({ m: name, tab: null }, { push: true });
    return this.show(this.shell.state);
  }

  async show(state) {
    const card = this.cards.find(({ name }) => name === state.m) ?? this.cards.find(({ fault }) => !fault);
    if (!card) return this.detail.replaceChildren();
    const same = this.card?.name === card.name && this.tabs;
    [this.card, this.name, this.tab] = [card, card.name, state.tab ?? "figure"];
    this.drawList();
    if (same) return this.tabs.choose(this.tab, false);
    this.proved = null;
    this.tabs = tabs([
      { name: "figure", title: "Figure 1", show: () => this.figure() },
      { name: "prove", title: "Prove", show: () => this.prove() },
      { name: "api", title: "Ask it from elsewhere", show: () => this.api() },
    ], (name) => {
      this.tab = name;
      this.shell.set({ tab: name === "figure" ? null : name });
    });
    const links = (PAGES[card.is] ?? []).map(([page, says]) => element("a", { class: "chip", href: `/${page}?m=${encodeURIComponent(card.name)}` }, says));
    const about = [card.says, card.limits && `Limits: ${card.limits}`].filter(Boolean).map((each) => element("p", { class: "quiet" }, each));
    this.detail.replaceChildren(element("h2", {}, element("bdi", {}, card.name)), ...about, element("div", { class: "row" }, links), this.tabs.element);
    return this.tabs.choose(this.tab, false);
  }

  async figure() {
    try {
      const drawn = drawing(await this.shell.ask("models", { name: this.name, html: true }));
      return element("div", { class: "figure-one" }, drawn);
    } catch (error) {
      return this.failed(error);
    }
  }

  prove() {
    const input = element("textarea", { rows: 3, maxlength: 20000, placeholder: "Your own texts, one to a line; without any, three sentences of peasy's own." });
    const home = element("div", { role: "status" });
    const start = button("Prove", async () => {
      const prompts = input.value.split("\n").map((line) => line.trim()).filter(Boolean).slice(0, 8);
      this.proved = { model: this.name, ...(prompts.length ? { prompts } : {}) };
      start.disabled = true;
      home.replaceChildren(element("p", { class: "quiet" }, "Two roads are being walked …"));
      try {
        const answer = await this.shell.ask("prove", { ...this.proved, html: true });
        const good = answer.result.passed;
        home.replaceChildren(element("p", { class: `verdict ${good ? "good" : "bad"}` }, `${good ? "✓" : "✗"} ${answer.result.verdict}`), drawing(answer));
      } catch (error) {
        this.shell.fail(error, home);
      } finally {
        start.disabled = false;
      }
    }, { class: "plain main" });
    const own = field("texts to prove it on", input);
    own.classList.add("wide");
    return element("div", {}, element("p", { class: "lead" }, "The same numbers by two roads: from the cache and without, alone and in a batch, fused and by the formula on paper. Each equality with its measured distance."), own, element("div", { class: "row" }, start), home);
  }

  api() {
    return element("div", {}, element("p", { class: "lead" }, "This address answers the clients of the OpenAI API while the studio is open; peasy serve gives the same to other programs."),
      snippets(this.card).map(({ title, text }) => element("div", { class: "snippet" }, element("h3", {}, title), button("Copy", () => this.shell.copy(text, title), { "aria-label": `Copy ${title}` }), element("pre", { tabindex: 0 }, text))));
  }

  failed(error) {
    const home = element("div", {});
    this.shell.fail(error, home);
    return home;
  }
}

function size(bytes) {
  return bytes < 1e6 ? `${(bytes / 1e3).toFixed(0)} kB` : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
}
