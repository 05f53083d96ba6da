// Base class of the interactive figures (web components), with element helpers, shared style and theme changes.

// Create an element: `make("p.quiet", { role: "status" }, "text")`. Classes follow the tag; attributes can be left out:
// `on…` are listeners, true is a bare attribute, null and false are left out; aria attributes are written as they are.
// Children: strings and numbers become text nodes, never markup; null and false are left out.
export function make(tagAndClasses, ...parts) {
	const [tag, ...classes] = tagAndClasses.split(".");
	const attributes = parts[0]?.constructor === Object ? parts.shift() : {};
	const svg = ["svg", "g", "path", "text", "title", "circle", "rect"].includes(tag);
	const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
	if (classes.length) element.setAttribute("class", classes.join(" "));
	for (const [name, value] of Object.entries(attributes)) {
		const isAria = name.startsWith("aria-");
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (isPresent(value) || (isAria && value === false))
			element.setAttribute(name, value === true && !isAria ? "" : value);
	}
	fill(element, parts);
	return element;
}

export function fill(element, ...children) {
	element.replaceChildren(...children.flat(Infinity).filter(isPresent));
}

function isPresent(value) {
	return value != null && value !== false;
}

// Text of unknown direction, such as tokens and names of models.
export function bdi(...children) {
	return make("bdi", children);
}

// A paragraph in the secondary text colour.
export function quiet(...children) {
	return make("p.quiet", children);
}

export function button(label, onClick, attributes = {}) {
	return make("button", { type: "button", class: "plain", ...attributes, onclick: onClick }, label);
}

export function mainButton(label, onClick, attributes = {}) {
	return button(label, onClick, { class: "plain main", ...attributes });
}

// A horizontal bar; `kind` is the class of its filled part.
export function bar(fraction, kind = null, colour = "") {
	const filled = make("i", { class: kind, "aria-hidden": true });
	filled.style.width = `${100 * fraction}%`;
	filled.style.background = colour;
	return make("span.track", filled);
}

export function caveatLine(caveat) {
	return make("p.quiet.caveat", caveat.charAt(0).toUpperCase() + caveat.slice(1));
}

/** Whether layers are drawn one below the other. */
export const isPhone = () => window.innerWidth < 700;

export const prefersStills = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Labelled <select>; `onChange` receives the chosen index.
export function makeSelect(label, options, chosen, onChange) {
	const select = make("select", { onchange: () => onChange(select.selectedIndex) });
	options.forEach((option) => select.append(make("option", option)));
	select.selectedIndex = chosen;
	return make("label", `${label} `, select);
}

// Children with slot="table" stay visible. The static picture in <noscript> is the fallback if drawing fails.
export class Figure extends HTMLElement {
	resizeObserver;

	/** Draw the figure; each kind of figure has its own. */
	async build(_data) {}

	#data = null;

	connectedCallback() {
		const stored = this.querySelector(':scope > script[type="application/json"]');
		if (!this.#data && stored) this.data = JSON.parse(stored.textContent);
		this.resizeObserver ??= new ResizeObserver(() => this.onResize());
		this.resizeObserver.observe(this);
		this.stopWatchingTheme ??= watchTheme(() => this.repaint());
	}

	disconnectedCallback() {
		this.resizeObserver?.disconnect();
		this.stopWatchingTheme?.();
		this.stopWatchingTheme = undefined;
	}

	get data() {
		return this.#data;
	}

	set data(data) {
		this.#data = data;
		this.ready = this.build(data).then(
			() => this.markReady(),
			(error) => this.showFallback(error),
		);
	}

	fillShadowRoot(...children) {
		const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
		root.adoptedStyleSheets = [getSharedStyleSheet()];
		root.replaceChildren(...children, make("slot", { name: "table" }));
		return root;
	}

	markReady() {
		this.width = this.measureWidth(); // the first resize event reports this width and must not repaint
		this.toggleAttribute("data-ready", true);
	}

	measureWidth() {
		return Math.round(this.getBoundingClientRect().width);
	}

	// Show the static picture. Its markup comes from peasy with all text escaped.
	showFallback(error) {
		const picture = this.querySelector(":scope > noscript");
		if (picture)
			picture.replaceWith(...new DOMParser().parseFromString(picture.textContent, "text/html").body.childNodes);
		console.error(error);
	}

	onResize() {
		const width = this.measureWidth();
		if (width && width !== this.width && this.hasAttribute("data-ready")) {
			this.width = width;
			this.repaint();
		}
	}

	repaint() {}

	emitSelect(selection) {
		this.dispatchEvent(new CustomEvent("peasy-select", { detail: selection, bubbles: true, composed: true }));
	}
}

export function define(name, elementClass) {
	if (!customElements.get(name)) customElements.define(name, elementClass);
}

// Call `onChange` when the theme changes; returns a function that stops watching.
function watchTheme(onChange) {
	const observer = new MutationObserver(onChange);
	observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
	const darkMode = matchMedia("(prefers-color-scheme: dark)");
	darkMode.addEventListener("change", onChange);
	return () => {
		observer.disconnect();
		darkMode.removeEventListener("change", onChange);
	};
}

let sharedStyleSheet;

function getSharedStyleSheet() {
	if (!sharedStyleSheet) (sharedStyleSheet = new CSSStyleSheet()).replaceSync(STYLE);
	return sharedStyleSheet;
}

const STYLE = `
:host{display:block;margin:1rem 0;--figure-ink:var(--ink,var(--jp-content-font-color1,#1b2230));
--figure-soft:var(--soft,var(--jp-content-font-color2,#4d576a));
--figure-panel:var(--panel,var(--jp-layout-color2,#f6f7f9));
--figure-paper:var(--paper,var(--jp-layout-color1,#fff));--figure-edge:var(--edge,var(--jp-border-color1,#d5d9e0));
--figure-accent:var(--accent,#0b5cad);--figure-mark:var(--mark,#b34700);
color:var(--figure-ink);font:14px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
*{box-sizing:border-box}
.frame{background:var(--figure-panel);border:1px solid var(--figure-edge);border-radius:.6rem;padding:.9rem 1rem}
h3{margin:0 0 .5rem;font-size:1.05rem;overflow-wrap:anywhere}
p{margin:.35rem 0}.quiet{color:var(--figure-soft);font-size:.85rem;max-width:60rem}
.bar{display:flex;flex-wrap:wrap;gap:.4rem .9rem;align-items:center;margin:0 0 .8rem}
label{color:var(--figure-soft);display:inline-flex;align-items:center;gap:.35rem;max-width:100%}
select{font:inherit;color:var(--figure-ink);background:var(--figure-paper);border:1px solid var(--figure-edge);
border-radius:.35rem;padding:.2rem .4rem;min-height:1.8rem;min-width:0;flex:0 1 auto}
.body{display:grid;grid-template-columns:minmax(0,1fr);gap:.8rem 1.6rem}
.side-by-side{display:contents}.overview{order:1}.main{order:2;min-width:0}.best{order:3;min-width:0}.words{order:4}
.overview{display:grid;gap:3px;place-content:start;overflow-x:auto;padding:3px;position:relative}
.overview span{color:var(--figure-soft);font-size:11px;text-align:center;align-self:center;white-space:nowrap;
overflow:hidden;text-overflow:ellipsis}
.overview span.side{text-align:right;padding-right:.3rem;overflow:visible}.overview span.axes{grid-column:1/-1;
text-align:left}
.overview button{padding:0;border:1px solid var(--figure-edge);border-radius:2px;background:var(--figure-paper);
aspect-ratio:1;min-width:24px;width:100%;cursor:pointer;line-height:0}
.overview canvas{position:absolute;left:0;top:0;pointer-events:none}
.overview.line div{display:grid;gap:2px}
.overview button[aria-pressed=true]{outline:3px solid var(--figure-mark);outline-offset:0}
.large{min-width:0;overflow-x:auto;padding:3px}
.large canvas{color:var(--figure-soft);display:block;max-width:none;cursor:crosshair;border-radius:3px}
.read{min-height:1.5em;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.read b{font-weight:600}
.sum{background:var(--figure-paper);border:1px solid var(--figure-edge);border-radius:.4rem;padding:.5rem .7rem;
margin:.4rem 0}
.sum strong{display:block;color:var(--figure-soft);font-size:.85rem;overflow-wrap:anywhere}
.sum pre{margin:.25rem 0 0;white-space:pre-wrap;overflow-wrap:anywhere;
font:12.5px/1.5 ui-monospace,"DejaVu Sans Mono",monospace}
.sum[hidden]{display:none}
ol.top{list-style:none;margin:.3rem 0 0;padding:0;display:grid;gap:2px;max-width:28rem}
ol.top li{display:grid;grid-template-columns:minmax(4rem,9rem) minmax(2rem,1fr) 4.5rem;gap:.5rem;align-items:center}
ol.top bdi{text-align:right;overflow:hidden;text-overflow:ellipsis;white-space:pre}
ol.top i{display:block;height:.7rem;background:var(--figure-accent);border-radius:2px;min-width:1px}
ol.top span{font-variant-numeric:tabular-nums}
.words{min-width:0;overflow-x:auto}
.text{line-height:2;max-width:60rem;margin:.4rem 0}
.text span{white-space:pre-wrap;padding:.15rem .1rem;border-radius:3px;cursor:pointer;
border-bottom:2px solid transparent}
.text span.query{outline:2px solid var(--figure-mark)}
.text span.key{border-bottom-color:var(--figure-accent)}
svg{display:block;max-width:none;height:auto}
svg text{font-size:13px;fill:var(--figure-ink);cursor:pointer;white-space:pre}
svg text.axis{fill:var(--figure-soft);font-size:11px;cursor:default}
svg text:focus{outline:none}
svg text:focus-visible,svg text.held{font-weight:700;text-decoration:underline 2px;text-underline-offset:3px}
.line{fill:none;stroke:var(--figure-accent);pointer-events:none}.ribbon{pointer-events:none}
.away{opacity:.1}
.gold{fill:none;stroke:var(--figure-mark);stroke-width:1.5;stroke-dasharray:5 3;pointer-events:none}
:focus-visible{outline:3px solid var(--figure-accent);outline-offset:2px}
@container (min-width:46rem){
.body{grid-template-columns:minmax(16rem,5fr) minmax(0,6fr)}
.body.one{grid-template-columns:minmax(0,6fr) minmax(16rem,5fr)}
.side-by-side{display:grid;gap:.8rem;align-content:start;grid-template-columns:minmax(0,1fr)}}
.frame{container-type:inline-size}
@media (prefers-reduced-motion:no-preference){.line,.ribbon{transition:opacity .12s}}
@media (prefers-contrast:more){.frame{border-color:currentColor}.quiet,label{color:var(--figure-ink)}}
@media (forced-colors:active){.large canvas,.overview button{border:1px solid CanvasText}
ol.top i{background:CanvasText}.line{stroke:CanvasText}}
`;

/** What pieces such as <D0> are, if there are any. */
export function byteNote(pieces) {
	const count = pieces.filter((piece) => /^<[0-9A-F]{2}>$/.test(piece)).length;
	if (!count) return "";
	const tokens = `${count} ${count === 1 ? "token is a single byte" : "tokens are single bytes"}`;
	return `${tokens}, such as <D0>: letters that are not in the vocabulary of this model, which hardly knows them.`;
}
