// Player: shows one step after another until there is none.

export class Player {
	/** `advance` shows the next step and returns false after the last; `onChange` gets whether it is playing. */
	constructor(advance, interval, onChange = () => {}) {
		Object.assign(this, { advance, interval, onChange, timer: 0 });
	}

	toggle() {
		if (this.timer) return this.stop();
		this.timer = setInterval(() => this.advance() || this.stop(), this.interval);
		return this.onChange(true);
	}

	stop() {
		clearInterval(this.timer);
		this.timer = 0;
		this.onChange(false);
	}
}
