"""Studio in Chromium: first paint, Home's picture, hover, a typed sentence, GPT-2's shape, front-end size.

    python -m bench.studio

A server on a loopback socket, a new browser context with an empty cache each round. "first paint" is the browser's
first contentful paint of Home, "complete" its heading. "typed" is the time from the last letter of a 12-word sentence
to the first frame with all its heads, including the pause after typing; "entered" the same with the Enter key, without
a pause. "home" is the time until the picture of `stories` and its arithmetic can be used, "hover" from a pointer on a
token to the frame in which it is lit everywhere, "gpt2" from the last byte of the numbers of 12 layers with 12 heads
and 64 tokens to the picture of them. A missed bound is exit code 1.
"""

import statistics
import sys
import threading
import time
from urllib.parse import urlencode

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
from peasy.server.static import list_files, served_content
from peasy.tokenization import train_tokenizer

ROUNDS = 5
BOUNDS = {"first paint": 1000.0, "typed": 1000.0, "home": 1500.0, "hover": 50.0, "gpt2": 3000.0}
MAX_SIZE = 370_000
SENTENCES = (
    "the pizza came out of the oven and it tasted very good",
    "the dog ran to the park and she was happy all day",
)

PAINT_TIMES = """async () => {
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const paint = () => performance.getEntriesByType("paint").find((it) => it.name === "first-contentful-paint");
    while (!document.querySelector("main h1:not(.skeleton)")) await frame();
    const complete = performance.now();
    while (!paint()) await frame();
    return { "first paint": paint().startTime, complete };
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


HOME_TIME = """async () => {
    while (!document.querySelector(".zoom-steps li")) await new Promise((done) => requestAnimationFrame(done));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return performance.now();
}"""

HOVER_TIME = """async () => {
    const token = document.querySelector('.token[data-token="decoder:3"]');
    const start = performance.now();
    token.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    if (document.querySelectorAll(".flow .lit").length < 4) throw new Error("the token is not lit everywhere");
    return performance.now() - start;
}"""

DRAW_TIME = """async () => {
    while (document.querySelectorAll(".flow .head").length < 144)
        await new Promise((done) => requestAnimationFrame(done));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const passes = performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/forward-pass"));
    return performance.now() - passes[0].responseEnd;
}"""


def random_model(name: str, layers: int, heads: int, width: int) -> LoadedModel:
    """Return a decoder with random weights."""
    tokenizer = train_tokenizer([*SENTENCES] * 9, "words")
    stack = nn_config.StackConfig(
        layers, nn_config.AttentionConfig(heads), nn_config.MLPConfig(4 * width), nn_config.LayerNormConfig()
    )
    config = DecoderConfig(len(tokenizer), width, stack, None, nn_config.RotaryConfig())
    return LoadedModel(name, build_model(config, seed=1), tokenizer)


def gpt2_text(num_words: int = 64) -> str:
    """Return words of the random models' vocabulary."""
    words = " ".join(SENTENCES).split()
    return " ".join(words[index % len(words)] for index in range(num_words))


def measure(browser, url: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(f"{url}/home?m=stories")  # with an empty cache, as at a first visit
    times = page.evaluate(PAINT_TIMES)
    times["home"] = page.evaluate(HOME_TIME)
    times["hover"] = page.evaluate(HOVER_TIME)
    page.goto(f"{url}/home?{urlencode({'m': 'gpt2-shape', 't': gpt2_text()})}")
    times["gpt2"] = page.evaluate(DRAW_TIME)
    page.goto(f"{url}/look?m=six&t=a+first+sentence")
    page.wait_for_selector("peasy-maps[data-ready]")
    times["typed"] = page.evaluate(UPDATE_TIME, [SENTENCES[0], False])
    times["entered"] = page.evaluate(UPDATE_TIME, [SENTENCES[1], True])
    context.close()
    return times


def main() -> None:
    print(machine())
    size = sum(len(served_content(file, url[1:])) for url, file in list_files().items())
    print(f"front end: {size / 1e3:.1f} kB in {len(list_files())} files")
    listening = bind("127.0.0.1", 0)
    models = [random_model("six", 6, 8, 256), random_model("gpt2-shape", 12, 12, 768), "stories"]
    config = uvicorn.Config(build_app(ModelRegistry(models), pages=True), log_config=None, lifespan="on")
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
    sys.exit(size >= MAX_SIZE or any(medians[key] > maximum for key, maximum in BOUNDS.items()))


if __name__ == "__main__":
    main()
