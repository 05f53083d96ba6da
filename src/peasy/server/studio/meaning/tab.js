// Base class of the tabs of the page Meaning: a model, a request, a rendered result.

import { ApiError } from "../api.js";
import { renderDocument } from "../document.js";
import { element, field, select, slider } from "../element.js";
import { latestOnly } from "../latest.js";

const TYPING_DELAY = 400; // milliseconds after the last change before the request

export class MeaningTab {
	/** Models need this `capability`; `trainedKind` is one to train, `modelParameter` the URL parameter of the chosen. */
	constructor(shell, models, capability = "embed", trainedKind = "encoder", modelParameter = "m") {
		this.shell = shell;
		this.trainedKind = trainedKind;
		this.state = shell.state;
		this.models = models
			.filter(({ capabilities }) => capabilities.includes(capability))
			.sort((one, other) => one.capabilities.indexOf(capability) - other.capabilities.indexOf(capability));
		this.resultContainer = element("div", { "aria-live": "off" });
		this.runLatest = latestOnly(shell, this.resultContainer, this.resultContainer);
		this.model = this.models.find(({ name }) => name === this.state[modelParameter])?.name ?? this.models[0]?.name;
		this.modelField = field(
			"model",
			select(
				this.models.map(({ name }) => name),
				this.model,
				(name) => {
					this.model = name;
					shell.setState({ [modelParameter]: name }, { push: true });
					this.update();
				},
			),
		);
	}

	start() {
		if (this.model) return this.update();
		return this.shell.showError(
			new ApiError(
				"There is no model for this yet.",
				`Train one on the page Train: kind ${this.trainedKind}, data opinions.`,
			),
			this.resultContainer,
		);
	}

	/** A slider of the number of clusters, which is in the URL unless it is the default. */
	clusterSlider(defaultValue) {
		this.clusters = Number(this.state.k) || defaultValue;
		return slider("clusters", { min: 1, max: 8, value: this.clusters }, (value) => {
			this.clusters = value;
			this.updateSoon({ k: value === defaultValue ? null : value });
		});
	}

	/** Change the URL, and send a request after a moment without further changes. */
	updateSoon(stateChanges) {
		this.shell.setState(stateChanges);
		clearTimeout(this.timer);
		this.timer = setTimeout(() => this.update(), TYPING_DELAY);
	}

	/** The command of this tab and its body. */
	buildRequest() {
		return { command: "", body: {} };
	}

	/** Draw the result of the command. */
	draw(_result, _rendered) {}

	update() {
		const { command, body } = this.buildRequest();
		return this.runLatest(
			(options) => this.shell.request(command, { ...body, html: true }, options),
			(response) => {
				this.response = response;
				this.draw(response.result, renderDocument(response));
			},
		);
	}
}
