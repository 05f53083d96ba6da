"""Studio in Chromium: first paint, time from a typed sentence to all heads of a six-layer model, front-end size.

    python -m bench.studio

A server on a loopback socket, a new browser context each round. "first paint" is the browser's first contentful paint,
"complete" the first page complete. "typed" is the time from the last letter of a 12-word sentence to the first frame
with all its heads, including the pause after typing; "entered" the same with the Enter key, without a pause. A missed
bound is exit code 1.
"""

import statistics
import sys
import threading
import time

import uvicorn
from playwright.sync_api import sync_playwright

from bench.measure import machine
from peasy.cli.doctor import find_chromium
from peasy.commands.load import LoadedModel
from peasy.models.build import build as build_model
from peasy.models.config import DecoderConfig
from peasy.nn import config as nn_config
from peasy.server.app import build_app
from peasy.server.model_registry import ModelRegistry
from peasy.server.server import bind
from peasy.server.static import list_files
from peasy.tokenization import train_tokenizer

ROUNDS = 5
BOUNDS = {"first paint": 1000.0, "typed": 1000.0}
SENTENCES = (
    "the pizza came out of the oven and it tasted very good",
    "the dog ran to the park and she was happy all day",
)

PAINT_TIMES = """async () => {
    while (!document.querySelector("main h1")) await new Promise((done) => requestAnimationFrame(done));
    const complete = performance.now();
    const paint = performance.getEntriesByType("paint").find((entry) => entry.name === "first-contentful-paint");
    return { "first paint": paint.startTime, complete };
}"""

UPDATE_TIME = """async ([text, enter]) => {
    const field = document.getElementById("text");
    const before = document.querySelector("peasy-maps");
    field.focus();
    field.value = text;
    field.dispatchEvent(new Event("input"));
    const start = performance.now();
    if (enter) field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    for (;;) {
        const maps = document.querySelector("peasy-maps[data-ready]");
        if (maps && maps !== before) break;
        await new Promise((done) => requestAnimationFrame(done));
    }
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now() - start;
}"""


def six_layer_model() -> LoadedModel:
    """Return a decoder with 6 layers, 8 heads, d_model 256 and random weights."""
    tokenizer = train_tokenizer([*SENTENCES] * 9, "words")
    stack = nn_config.StackConfig(
        6, nn_config.AttentionConfig(8), nn_config.MLPConfig(1024), nn_config.LayerNormConfig()
    )
    return LoadedModel(
        "six", build_model(DecoderConfig(len(tokenizer), 256, stack, None, nn_config.RotaryConfig()), seed=1), tokenizer
    )


def measure(browser, url: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(f"{url}/work")
    times = page.evaluate(PAINT_TIMES)
    page.goto(f"{url}/look?m=six&t=a+first+sentence")
    page.wait_for_selector("peasy-maps[data-ready]")
    times["typed"] = page.evaluate(UPDATE_TIME, [SENTENCES[0], False])
    times["entered"] = page.evaluate(UPDATE_TIME, [SENTENCES[1], True])
    context.close()
    return times


def main() -> None:
    print(machine())
    size = sum(len(file.read_bytes()) for file in list_files().values())
    print(f"front end: {size / 1e3:.1f} kB in {len(list_files())} files")
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(build_app(ModelRegistry([six_layer_model()]), pages=True), log_config=None, lifespan="on")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        rounds = [measure(browser, f"http://127.0.0.1:{listening.getsockname()[1]}") for _ in range(ROUNDS)]
        browser.close()
    server.should_exit = True
    thread.join(10)
    for key in rounds[0]:
        values = sorted(result[key] for result in rounds)
        print(f"  {key:<12} {statistics.median(values):8.1f} ms   from {values[0]:.1f} to {values[-1]:.1f}")
    medians = {key: statistics.median(result[key] for result in rounds) for key in BOUNDS}
    sys.exit(size >= 300_000 or any(medians[key] > maximum for key, maximum in BOUNDS.items()))


if __name__ == "__main__":
    main()
