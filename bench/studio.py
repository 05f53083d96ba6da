"""How fast the studio is in Chromium: first paint, a typed sentence to all heads of a six-layer model, its size.

    python -m bench.studio

A server on a loopback socket, a fresh browser context each round. "Painted" is the browser's first contentful paint,
"drawn" the first page complete. "Seen" is from the last letter of a 12-word sentence to the first frame with all heads
of it, the pause after typing included; "entered" the same with the Enter key, which waits for nothing. A bound that is
broken is exit code 1.
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
BOUNDS = {"painted": 1000.0, "seen": 1000.0}
SENTENCES = (
    "the pizza came out of the oven and it tasted very good",
    "the dog ran to the park and she was happy all day",
)

DRAWN = """async () => {
    while (!document.querySelector("#place h1")) await new Promise((done) => requestAnimationFrame(done));
    const drawn = performance.now();
    const paint = performance.getEntriesByType("paint").find((each) => each.name === "first-contentful-paint");
    return { painted: paint.startTime, drawn };
}"""

SEEN = """async ([text, enter]) => {
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


def six_layers() -> LoadedModel:
    """A decoder of 6 layers of 8 heads, 256 wide, with random weights."""
    words = train_tokenizer([*SENTENCES] * 9, "words")
    stack = nn_config.StackConfig(
        6, nn_config.AttentionConfig(8), nn_config.MLPConfig(1024), nn_config.LayerNormConfig()
    )
    return LoadedModel(
        "six", build_model(DecoderConfig(len(words), 256, stack, None, nn_config.RotaryConfig()), seed=1), words
    )


def measure(browser, home: str) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.goto(f"{home}/work")
    found = page.evaluate(DRAWN)
    page.goto(f"{home}/look?m=six&t=a+first+sentence")
    page.wait_for_selector("peasy-maps[data-ready]")
    found["seen"] = page.evaluate(SEEN, [SENTENCES[0], False])
    found["entered"] = page.evaluate(SEEN, [SENTENCES[1], True])
    context.close()
    return found


def main() -> None:
    print(machine())
    size = sum(len(file.read_bytes()) for file in list_files().values())
    print(f"front end: {size / 1e3:.1f} kB in {len(list_files())} files")
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(build_app(ModelRegistry([six_layers()]), pages=True), log_config=None, lifespan="on")
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
        each = sorted(one[key] for one in rounds)
        print(f"  {key:<8} {statistics.median(each):8.1f} ms   from {each[0]:.1f} to {each[-1]:.1f}")
    sys.exit(size >= 300_000 or any(statistics.median(o[k] for o in rounds) > most for k, most in BOUNDS.items()))


if __name__ == "__main__":
    main()
