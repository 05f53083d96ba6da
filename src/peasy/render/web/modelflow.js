// Forward pass of a model as one picture: tokens, residual stream, heads of every layer, logit lens, next tokens.

import { cssColour, fractionOf, paintMap, rampOf, sizeCanvas, tokenColour } from "./colour.js";
import { fill, make, prefersStills } from "./figure.js";
import { layOut } from "./modelflow_layout.js";
import { clamp, decodeBase64, indices, reachOf, writeNumber } from "./numbers.js";

const MIN_RIBBON = 0.08; // weaker links are not drawn
const LINKS_PER_ROW = 3; // of a closed layer
const MAX_PIECE = 12; // letters of a token
const [MIN_SCALE, MAX_SCALE] = [0.78, 1.6]; // of the letters of the page; a larger picture is scrolled
const MIN_WRITTEN = 0.1; // smaller weights of the chosen token are not written
const MARGIN = 28; // pixels beside the picture
const LETTER = 13.5; // pixels; larger in lecture mode

export class ModelFlow {
	/** Methods of `on` are called when something is chosen. `answer` is the list of next tokens. */
	constructor(on, answer) {
		this.on = on;
		this.answer = answer;
		this.canvas = make("canvas", { "aria-hidden": true });
		this.svg = make("svg.flow", {
			role: "group",
			"aria-label": "The model with its numbers",
			onpointerover: (event) => this.#onHover(event),
			onpointerleave: () => this.highlight(null),
		});
		this.scroller = make("div.flow-scroll", this.canvas, this.svg);
		this.element = make("div.flow-frame", this.scroller);
		new ResizeObserver(() => this.pass && this.#room() !== this.shownRoom && this.show(this.pass, this.view)).observe(
			this.element,
		);
	}

	/** `view`: the open layer and head, ablated heads, the chosen token, cached rows, and the next tokens before. */
	show(pass, view) {
		const isNew = pass !== this.pass;
		this.pass = pass;
		this.view = view;
		if (isNew)
			this.codes = new Map(
				pass.stacks
					.flatMap((stack) => stack.layers.flatMap((layer) => layer.attentions))
					.map(({ maps }) => [maps, decodeBase64(maps)]), // bytes: [head][row][column],
			);
		const [room, unit] = [this.#room(), letterScale()];
		this.letter = parseFloat(getComputedStyle(this.svg).fontSize) / LETTER || 1; // none before it is in the page
		this.shownRoom = room;
		this.layout = layOut(pass, { ...view, room: room / unit });
		const { width, height } = this.layout;
		this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
		this.scale = clamp(room / width, MIN_SCALE * unit, MAX_SCALE * unit);
		this.svg.setAttribute("width", String(width * this.scale));
		this.svg.setAttribute("height", String(height * this.scale));
		const bands = this.layout.bands.map((band) => this.#drawBand(band));
		fill(this.svg, this.#drawCrossLinks(), bands);
		this.#placeAnswer();
		this.#paintMaps();
		if (this.written && this.written.open === view.open) this.writeWeights(this.written.weights);
		this.highlight(view.token ?? null);
		if (isNew || view.open !== this.shownOpen) {
			this.#scrollToOpen();
			this.#drawIn();
		}
		this.shownOpen = view.open;
	}

	/** Put the next tokens where the line of the last token ends; on a phone, above the picture. */
	#placeAnswer() {
		const { narrow, bars } = this.layout;
		if (narrow) this.element.before(this.answer);
		else this.scroller.append(this.answer);
		this.answer.classList.toggle("beside", !narrow);
		const { top, width, labelWidth } = bars;
		const zoom = narrow ? 1 : this.scale;
		Object.assign(this.answer.style, { marginTop: `${narrow ? 0 : top}px`, width: `${width}px`, zoom });
		this.answer.style.setProperty("--label", `${labelWidth}px`);
	}

	#drawIn() {
		if (prefersStills()) return;
		for (const ribbon of this.svg.querySelectorAll(".ribbon.of-open")) {
			const length = /** @type {SVGPathElement} */ (ribbon).getTotalLength();
			const dashes = { strokeDasharray: [`0 ${length}`, `${length} 0`] };
			ribbon.animate(dashes, { duration: 600, easing: "ease-out" });
		}
	}

	#scrollToOpen() {
		const head = this.svg.querySelector(".head.open");
		if (!head) return;
		const [frame, box] = [this.element.getBoundingClientRect(), head.getBoundingClientRect()];
		const isHidden = box.right > frame.right || box.left < frame.left;
		if (isHidden) this.element.scrollLeft += box.left - frame.left - frame.width / 2;
	}

	#room() {
		return this.element.clientWidth - MARGIN;
	}

	#drawBand(band) {
		const rows = indices(band.numTokens);
		const title = this.pass.stacks.length === 1 ? "tokens" : band.stack.recurrent ? `${band.name} (RNN)` : band.name;
		return [
			make("text.band", { x: band.left, y: band.top + 14 }, title),
			band.strip &&
				make(
					"text.small",
					{ x: band.strip.left + band.strip.width, y: band.top + band.header - 10, "text-anchor": "end" },
					"embedding",
				),
			rows.map((row) => this.#drawStream(band, row)),
			band.strip && this.#drawStrips(band, band.strip, band.stack.embedding, "embedding"),
			band.layers.map((layer) => this.#drawLayer(band, layer)),
			band.final && this.#drawStrips(band, band.final, band.stack.final, "state"),
			rows.map((row) => this.#drawToken(band, row)),
			band.stack.recurrent && recurrentArrows(band),
		];
	}

	#drawToken(band, row) {
		const piece = band.stack.tokens.pieces[row];
		const { rowHeight } = this.layout;
		const isCached = band.name === "decoder" && row < (this.view.cached ?? 0);
		return make(
			"g",
			{
				class: `token${isCached ? " cached" : ""}`,
				"data-token": `${band.name}:${row}`,
				tabindex: this.#isChosen(band.name, row) ? 0 : -1,
				"aria-label": `token ${row}: ${piece}${isCached ? ", from the KV cache" : ""}`,
				"aria-pressed": this.#isChosen(band.name, row),
				onfocus: () => this.highlight({ stack: band.name, row }),
				...pressable(
					() => this.on.token(band.name, row),
					(key) => {
						const next = { ArrowUp: row - 1, ArrowDown: row + 1, Home: 0, End: band.numTokens - 1 }[key];
						return this.svg.querySelector(`[data-token="${band.name}:${next}"].token`);
					},
				),
			},
			[band, ...band.layers.filter(({ isNewLine }) => isNewLine)].flatMap(({ y }) => [
				make("rect", { x: band.left, y: y(row) - rowHeight / 2, width: band.labelWidth - 4, height: rowHeight, rx: 4 }),
				make(
					"text",
					{
						x: band.left + band.labelWidth - 10,
						y: y(row),
						class: `middle${this.#hasLabel(row) ? "" : " if-lit"}`,
						"text-anchor": "end",
					},
					shorten(piece),
				),
			]),
		);
	}

	/** Of very many tokens, only some have room for their text. */
	#hasLabel(row) {
		return row % Math.ceil(13 / this.layout.rowHeight) === 0;
	}

	#isChosen(stack, row) {
		const last = this.layout.bands.at(-1);
		const token = this.view.token ?? { stack: last.name, row: last.numTokens - 1 };
		return token.stack === stack && token.row === row;
	}

	/** The residual stream of one token: a line from its embedding to the end, as thick as its norm. */
	#drawStream(band, row) {
		const largest = reachOf(band.layers.flatMap((layer) => layer.norms));
		const thickest = Math.min(this.layout.rowHeight * 0.55, 9);
		const thickness = (norm) => (norm === undefined ? 2 : Math.max(0.8, thickest * Math.sqrt(norm / largest)));
		const { bands, bars, barsBottom, narrow } = this.layout;
		const isAnswering = band === bands.at(-1) && row === this.pass.answer_row;
		const end = isAnswering && !narrow ? bars.left - 6 : null;
		let from = band.strip ? band.strip.left : band.left + band.labelWidth - 4;
		const lines = band.layers.map((layer, index) => {
			if (layer.isNewLine) from = band.left + band.labelWidth - 4;
			const isEnd = index === band.layers.length - 1;
			const to = isEnd && !narrow ? (end ?? band.end - 8) : layer.left + layer.width;
			// to the next tokens, which are above the last row of a long text
			const turn = isEnd && end !== null ? `V${clamp(layer.y(row), bars.top, barsBottom)}` : "";
			const line = { d: `M${from} ${layer.y(row)}H${to}${turn}`, "stroke-width": thickness(layer.norms[row]) };
			from = to;
			return line;
		});
		if (!lines.length) lines.push({ d: `M${from} ${band.y(row)}H${band.end - 8}`, "stroke-width": 2 });
		return make(
			"g.stream",
			{ "data-token": `${band.name}:${row}`, stroke: tokenColour(row) },
			lines.map((line) => make("path", line)),
			make("title", "residual stream"),
		);
	}

	#drawStrips(band, { left, width }, vectors, name) {
		const height = Math.max(1.5, Math.min(this.layout.rowHeight - 2, 14));
		const limit = reachOf(vectors.flat());
		const range = { low: -limit, high: limit };
		const ramp = rampOf(true, false);
		const cell = width / (vectors[0]?.length || 1);
		return make(
			"g.strips",
			vectors.map((vector, row) =>
				make(
					"g",
					{ "data-token": `${band.name}:${row}` },
					vector.map((value, at) =>
						make("rect", {
							x: left + at * cell,
							y: band.y(row) - height / 2,
							width: cell,
							height,
							fill: cssColour(ramp, fractionOf(value, range)),
						}),
					),
					make("title", `${name}: the first ${vector.length} of ${this.pass.d_model} numbers`),
				),
			),
		);
	}

	#drawLayer(band, layer) {
		const top = layer.top + band.header - 4;
		const title = `layer ${layer.layer}${layer.isOpen ? "" : " ▸"}`;
		const isRoomy = this.pass.pre_norm && layer.attentions[0]?.width > 344 * this.letter - 98;
		const end = { x: layer.left + layer.width, y: layer.bottom + 20, "text-anchor": "end" };
		return [
			make("rect", {
				class: `layer${layer.isOpen ? " open" : ""}`,
				x: layer.left - (layer.isCompact ? 2 : 6),
				y: top,
				width: layer.width + (layer.isCompact ? 4 : 12),
				height: layer.bottom - top + 4,
				rx: 6,
			}),
			make(
				"g.layer-title",
				{
					tabindex: 0,
					"aria-expanded": layer.isOpen,
					"aria-label": `layer ${layer.layer} of the ${band.name}`,
					...pressable(() => this.on.layer(band.name, layer.layer)),
				},
				make("text", { x: layer.left, y: layer.top + 14 }, title),
			),
			layer.attentions.map((attention) => this.#drawAttention(band, layer, attention)),
			layer.mlp && this.#drawMlp(band, layer),
			layer.isOpen && layer.mlp && make("text.small", end, `${isRoomy ? "norm → " : ""}feed-forward`),
			layer.lens.length > 0 && this.#drawLens(band, layer),
		];
	}

	#drawAttention(band, layer, attention) {
		const shown = this.#shownHead(band, layer, attention);
		const isCross = attention.part === "cross_attention";
		const [start, end] = [attention.left, attention.left + attention.width - 12];
		const links = isCross ? [] : this.#linksOf(band, layer, attention, shown);
		const heads = shown === null ? "heads" : `head ${shown}`;
		const steps = `${this.pass.pre_norm ? "norm → " : ""}Q, K, V → ${heads} → sum`;
		const names = band.stack.recurrent
			? "attention to the encoder"
			: attention.width > 195 * this.letter
				? steps
				: isCross
					? "cross-attention"
					: heads;
		return [
			links.map((link) => this.#drawRibbon(band, layer, attention, link, { start, end, from: layer.y })),
			isCross && !band.stack.recurrent && make("text.small", { x: attention.left, y: layer.top + 14 }, "cross"),
			attention.heads.map((place, head) => this.#drawHead(band, layer, attention, head, place)),
			indices(band.numTokens).map((row) => plus(end + 5, layer.y(row), this.layout.rowHeight, `${band.name}:${row}`)),
			layer.isOpen && make("text.small", { x: start, y: layer.bottom + 20 }, names),
		];
	}

	/** One link: a ribbon from the token that is looked at to the one that looks, with its weight. */
	#drawRibbon(band, layer, attention, [row, key, weight], { start, end, from }) {
		const { part } = attention;
		const shown = this.#shownHead(band, layer, attention);
		const keyStack = part === "cross_attention" ? this.layout.bands[0] : band;
		const isOff = shown !== null && this.view.isOff(band.name, layer.layer, part, shown);
		const isEdge = start > end; // on a narrow screen, cross-attention begins at the right end
		const bend = (start + end) / 2;
		const [y, to] = [from(key), layer.y(row)];
		const widest = clamp(this.layout.rowHeight * 0.6, 6, 12);
		const place = { "data-query": `${band.name}:${row}`, "data-key": `${keyStack.name}:${key}` };
		const { pieces } = band.stack.tokens;
		const sentence = `${pieces[row]} looks at ${keyStack.stack.tokens.pieces[key]}: about ${writeNumber(weight, 2)}`;
		const opacity = part === "cross_attention" && !layer.isOpen ? 0.1 + weight * 0.3 : 0.15 + weight * 0.75;
		return [
			make(
				"path",
				{
					class: `ribbon${shown === null ? "" : " of-open"}${isOff ? " off" : ""}`,
					d: `M${start} ${y}C${bend} ${y} ${bend} ${to} ${end} ${to}`,
					stroke: tokenColour(key),
					"stroke-width": Math.max(0.8, weight * widest),
					"stroke-opacity": clamp(opacity, 0, 0.9),
					...place,
					onclick: () =>
						shown === null ? this.on.layer(band.name, layer.layer) : this.on.cell?.({ stack: band.name, row, key }),
				},
				make("title", shown === null ? `${sentence} (mean of the heads)` : sentence),
			),
			shown !== null &&
				!isOff &&
				weight >= MIN_WRITTEN &&
				this.layout.rowHeight >= 14 &&
				make("text.weight", {
					x: start + (isEdge ? -8 : 8),
					"text-anchor": isEdge ? "end" : null,
					y: y + (key ? -weight * 6 - 4 : weight * 6 + 13),
					...place,
				}),
		];
	}

	/** Write the weights of the open head beside its ribbons: the maps hold only 256 shades of them. */
	writeWeights(weights) {
		const isNew = this.written?.open !== this.view.open;
		this.written = { open: this.view.open, weights };
		if (isNew && this.layout.bands.some(({ layers }) => layers.some(({ attentions }) => attentions[0]?.tile > 1)))
			this.show(this.pass, this.view);
		for (const label of /** @type {NodeListOf<SVGElement>} */ (this.svg.querySelectorAll(".weight"))) {
			const [row, key] = [label.dataset.query, label.dataset.key].map((place) => Number(place.split(":")[1]));
			label.textContent = writeNumber(weights[row][key], 2);
		}
	}

	#shownHead(band, layer, attention) {
		const { open } = this.view;
		const isOpen = open?.stack === band.name && open.layer === layer.layer && open.part === attention.part;
		return isOpen ? open.head : null;
	}

	/** The strongest links of one head, or of the mean of all heads, as [row, key, weight]. */
	#linksOf(band, layer, attention, head) {
		const { maps, num_heads, part } = attention;
		// the maps of a long text are pooled: of the open head there are the weights themselves
		const exact = attention.tile > 1 && head !== null && this.written?.open === this.view.open && this.written.weights;
		const [rows, columns, tile] = exact
			? [exact.length, exact[0].length, 1]
			: [attention.rows, attention.columns, attention.tile];
		const codes = this.codes.get(maps);
		const isOn = (at) => !this.view.isOff(band.name, layer.layer, part, at);
		const heads = head === null ? indices(num_heads).filter(isOn) : [head];
		const links = [];
		for (let row = 0; row < rows; row++) {
			const sums = new Float32Array(exact ? exact[row] : columns);
			for (const at of exact ? [] : heads) {
				const start = (at * rows + row) * columns;
				for (let key = 0; key < columns; key++) sums[key] += codes[start + key] / 255 / heads.length;
			}
			const strongest = [...sums.keys()]
				.sort((one, other) => sums[other] - sums[one])
				.slice(0, head === null ? LINKS_PER_ROW : 12);
			for (const key of strongest) if (sums[key] >= MIN_RIBBON) links.push([row * tile, key * tile, sums[key]]);
		}
		return links;
	}

	#drawHead(band, layer, attention, head, { left, top, side }) {
		const isOpen = this.#shownHead(band, layer, attention) === head;
		const isOff = this.view.isOff(band.name, layer.layer, attention.part, head);
		const kind = attention.part === "attention" ? "" : "cross-attention, ";
		const name = `layer ${layer.layer}, ${kind}head ${head}`;
		return make(
			"g",
			{
				class: `head${isOpen ? " open" : ""}${isOff ? " off" : ""}`,
				tabindex: isOpen ? 0 : -1,
				"data-head": `${band.name}.${layer.layer}.${attention.part}.${head}`,
				"aria-pressed": isOpen,
				"aria-label": `${name}${isOff ? ", switched off" : ""}`,
				...pressable(
					() => this.on.head(band.name, layer.layer, attention.part, head),
					(key, target) => {
						const heads = [...this.svg.querySelectorAll("[data-head]")];
						return heads[heads.indexOf(target) + { ArrowLeft: -1, ArrowRight: 1 }[key]];
					},
				),
			},
			make("rect", { x: left - 1, y: top - 1, width: side + 2, height: side + 2, rx: 2 }),
			isOff && make("text.small.middle", { x: left + side / 2, y: top + side / 2 }, "off"),
			make("title", `${name}${isOff ? " (off)" : ""}`),
		);
	}

	#drawMlp(band, layer) {
		const { left, width } = layer.mlp;
		const added = layer.added.feedforward;
		const largest = reachOf(added);
		const height = Math.max(2, Math.min(this.layout.rowHeight - 6, 12));
		return make(
			"g.mlp",
			added.map((norm, row) =>
				make(
					"g",
					{ "data-token": `${band.name}:${row}` },
					make("rect", {
						x: left,
						y: layer.y(row) - height / 2,
						width: (width - 14) * (norm / largest),
						height,
						rx: 2,
						fill: tokenColour(row),
					}),
					plus(left + width - 6, layer.y(row), this.layout.rowHeight),
					make("title", `feed-forward adds a vector of length ${writeNumber(norm, 2)}`),
				),
			),
		);
	}

	/** What the model would say if it ended here. */
	#drawLens(band, layer) {
		const write = (lens) => lens.map(({ piece, probability }) => `${shorten(piece)} ${writeNumber(probability, 2)}`);
		const written = write(layer.lens);
		const stackBefore = this.view.before?.find(({ name }) => name === band.name);
		const [before = written[0]] = write(stackBefore?.layers[layer.layer]?.lens ?? []);
		const place = { x: layer.left + layer.width, y: layer.bottom + 20 + 17 * this.letter, "text-anchor": "end" };
		const sentence = `would say: ${written[0]}`;
		const label = sentence.length * 6.5 * this.letter < layer.width + 12 ? sentence : written[0];
		return make(
			`g.lens${before === written[0] ? "" : ".changed"}`,
			make("text", place, layer.isCompact ? shorten(layer.lens[0].piece, 8) : label),
			make("title", `logit lens after layer ${layer.layer}: ${written.join(", ")}`),
		);
	}

	/** Cross-attention of the opened layer, from the end of the encoder to the decoder. */
	#drawCrossLinks() {
		const [encoder, decoder] = this.layout.bands;
		if (!decoder) return [];
		return decoder.layers.flatMap((layer) =>
			layer.attentions
				.filter(({ part }) => part === "cross_attention")
				.flatMap((attention) => {
					const links = this.#linksOf(decoder, layer, attention, this.#shownHead(decoder, layer, attention));
					const ends = { start: encoder.end - 8, end: attention.left + attention.width - 12, from: encoder.lastY };
					return links.flatMap((link) => this.#drawRibbon(decoder, layer, attention, link, ends));
				}),
		);
	}

	#paintMaps() {
		const { width, height, bands } = this.layout;
		const ratio = Math.min(window.devicePixelRatio || 1, 2);
		sizeCanvas(this.canvas, width * this.scale, height * this.scale, ratio);
		const context = this.canvas.getContext("2d");
		context.scale(ratio * this.scale, ratio * this.scale);
		context.imageSmoothingEnabled = false;
		const small = document.createElement("canvas");
		const ramp = rampOf(false, true);
		const placed = bands.flatMap(({ name, layers }) =>
			layers.flatMap(({ layer, attentions }) => attentions.map((attention) => ({ name, layer, attention }))),
		);
		for (const { name, layer, attention } of placed) {
			const { rows, columns, part } = attention;
			const codes = this.codes.get(attention.maps);
			attention.heads.forEach(({ left, top, side }, head) => {
				const numbers = { codes, last: -1, low: 0, step: 1 / 255 };
				paintMap(small, { numbers, start: head * rows * columns, rows, columns, range: { low: 0, high: 1 }, ramp });
				context.globalAlpha = this.view.isOff(name, layer, part, head) ? 0.15 : 1;
				context.drawImage(small, left, top, side, side);
			});
		}
	}

	#onHover(event) {
		const place = event.target.closest?.("[data-token]")?.dataset.token;
		if (!place) return;
		const [stack, row] = place.split(":");
		this.highlight({ stack, row: Number(row) });
	}

	/** Light up one token everywhere; null for the chosen one, or for none. */
	highlight(token) {
		const lit = token ?? this.view.token;
		this.svg.classList.toggle("focused", Boolean(lit));
		for (const one of this.svg.querySelectorAll(".lit, .lit-key")) one.classList.remove("lit", "lit-key");
		if (!lit) return;
		const name = `="${lit.stack}:${lit.row}"]`;
		for (const one of this.svg.querySelectorAll(`[data-token${name}, [data-query${name}`)) one.classList.add("lit");
		for (const one of this.svg.querySelectorAll(`[data-key${name}`)) one.classList.add("lit-key");
	}
}

function recurrentArrows(band) {
	const x = band.left + band.labelWidth + 12;
	const d = indices(band.numTokens - 1).map(
		(row) => `M${x} ${band.y(row)}q20 ${(band.y(1) - band.y(0)) / 2} 0 ${band.y(1) - band.y(0)}`,
	);
	return make("path.recurrent", { d: d.join("") });
}

function plus(x, y, rowHeight, token = null) {
	if (rowHeight < 12) return null;
	const size = Math.min(4, rowHeight / 3);
	return make(
		"g.plus",
		{ "data-token": token },
		make("circle", { cx: x, cy: y, r: size + 1.5 }),
		size > 2 && make("path", { d: `M${x - size} ${y}h${2 * size}M${x} ${y - size}v${2 * size}` }),
	);
}

function shorten(piece, most = MAX_PIECE) {
	const letters = [...piece];
	return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : piece;
}

const letterScale = () => parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;

/** Attributes of a part that is pressed like a button; `neighbour(key, part)` gives the part that a key leads to. */
function pressable(press, neighbour = (_key, _part) => null) {
	const onkeydown = (event) => {
		const next = neighbour(event.key, event.currentTarget);
		if (event.key === "Enter" || event.key === " ") press();
		else if (next) next.focus();
		else return;
		event.preventDefault();
		event.stopPropagation();
	};
	return { role: "button", onclick: press, onkeydown };
}
