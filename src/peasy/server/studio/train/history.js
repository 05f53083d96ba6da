// Attention on one sentence at every checkpoint of a run, with a slider over the checkpoints.

import { clamp, formatCount } from "/web/render/numbers.js";
import { renderDocument } from "../document.js";
import { bdi, button, element, field, fieldRow, fill, quiet, select, setSlider, slider } from "../element.js";
import { Player } from "/web/render/player.js";

const FRAME_TIME = 700; // milliseconds per checkpoint

export class AttentionHistory {
	constructor(shell) {
		this.shell = shell;
		this.run = null;
		this.playButton = button("Play", () => this.play());
		this.player = new Player(
			() => this.moveFrame(1),
			FRAME_TIME,
			(playing) => (this.playButton.textContent = playing ? "Pause" : "Play"),
		);
		this.bar = fieldRow();
		this.container = element("div");
		this.element = element(
			"section",
			{ "aria-label": "Attention during training" },
			element("h2", "Attention during training"),
			this.bar,
			this.container,
		);
	}

	clear(run = null) {
		this.player.stop();
		[this.run, this.maps, this.result] = [run, null, null];
		fill(this.bar);
		fill(this.container);
	}

	async show(run, state) {
		this.run = run;
		this.modulePath = state.place ?? null;
		this.chosenStep = state.step === undefined ? null : Number(state.step);
		await this.update();
	}

	/** Request the frames again: there may be another checkpoint. The last one is shown unless one was chosen. */
	async update() {
		if (!this.run) return;
		try {
			const response = await this.shell.request("attention-history", {
				name: this.run,
				html: true,
				...(this.modulePath ? { module_path: this.modulePath } : {}),
			});
			if (!response.result.steps.length) return this.showEmpty();
			const unchanged = this.result && JSON.stringify(this.result) === JSON.stringify(response.result);
			if (!unchanged) this.draw(response);
		} catch (error) {
			if (error.name === "AbortError") return;
			this.showEmpty();
			this.shell.showError(error, this.container);
		}
	}

	showEmpty() {
		this.clear(this.run);
		fill(
			this.container,
			quiet("Nothing recorded yet. Models with attention are recorded at every checkpoint; other models have none."),
		);
	}

	draw(response) {
		const { steps, module_paths, module_path, text } = response.result;
		this.result = response.result;
		const rendered = renderDocument(response);
		this.maps = rendered.querySelector("peasy-maps");
		const last = steps.length - 1;
		const frame = this.chosenStep === null ? last : clamp(steps.indexOf(this.chosenStep), 0, last);
		this.slider = slider(
			"after step",
			{ min: 0, max: last, value: frame, write: (index) => formatCount(steps[index]) },
			(index) => this.showFrame(index),
		);
		const attention = field(
			"attention",
			select(
				module_paths.map((path) => [path, describePath(path)]),
				module_path,
				(path) => {
					this.modulePath = path;
					this.shell.setState({ place: path });
					this.update();
				},
			),
		);
		fill(this.bar, attention, this.slider, this.playButton);
		fill(this.container, element("p.sentence", bdi(text)), rendered);
		this.maps?.addEventListener("peasy-select", ({ detail }) => this.showStep(detail.mapColumn));
		this.maps?.ready?.then(() => frame !== last && this.maps.selectMap(this.maps.mapRow, frame));
	}

	showFrame(index) {
		this.maps?.selectMap(this.maps.mapRow, index);
		this.showStep(index);
	}

	/** Show the step of a frame on the slider and in the URL. */
	showStep(index) {
		const step = this.result.steps[index];
		setSlider(this.slider, index, formatCount(step));
		this.chosenStep = index === this.result.steps.length - 1 ? null : step;
		this.shell.setState({ step: this.chosenStep });
	}

	/** Show the next or previous checkpoint; false if there is none. */
	moveFrame(change) {
		const isFrame = this.result?.steps[this.maps.mapColumn + change] !== undefined;
		if (isFrame) this.showFrame(this.maps.mapColumn + change);
		return isFrame;
	}

	play() {
		if (!this.result) return;
		if (!this.player.timer && this.maps.mapColumn === this.result.steps.length - 1) this.showFrame(0);
		this.player.toggle();
	}
}

function describePath(path) {
	const [stack, layer, part] = path.split(".");
	return `${stack}, layer ${layer}${part === "attention" ? "" : `, ${part.replaceAll("_", " ")}`}`;
}
