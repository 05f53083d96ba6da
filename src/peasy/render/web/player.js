// Player: shows one step after another until there is none.

export class Player {
	/**
	 * @param {() => boolean} advance shows the next step; false after the last
	 * @param {number} interval milliseconds
	 * @param {(playing: boolean) => unknown} onChange
	 */
	constructor(advance, interval, onChange = () => {}) {
		this.advance = advance;
		this.interval = interval;
		this.onChange = onChange;
		this.timer = 0;
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
