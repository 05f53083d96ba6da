"""Attention pages in Chromium: time to show all heads of a GPT-2 shape or a long text, hover latency, memory.

    python -m bench.page

Each page is opened five times, in a new browser, with the network off. "Shown" is the time from the start of navigation
to the first frame after the figure is complete; an empty page is measured first. Memory is that of the page's renderer
process; hover is the time from the event to the next frame.
A missed bound is exit code 1.
"""

import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from bench.measure import machine
from peasy import render
from peasy.cli.doctor import find_chromium
from peasy.views.document import Document, Maps, Rows

ROUNDS = 5
BOUNDS = {"short": 500.0, "long": 2000.0, "memory": 500.0, "hover": 50.0}

PAINT_TIMES = """async () => {
    const maps = document.querySelector("peasy-maps");
    await maps.ready;
    const start = performance.now();
    maps.repaint();
    const repaint = performance.now() - start;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return { repaint, shown: window.__shown };
}"""

SHOWN_TIMER = """new Promise((done) => document.addEventListener("DOMContentLoaded", done)).then(async () => {
    await document.querySelector("peasy-maps")?.ready;
    requestAnimationFrame(() => setTimeout(() => { window.__shown = performance.now(); }));
});"""

HOVER = """async () => {
    const maps = document.querySelector("peasy-maps");
    const { heatMap } = maps;
    const latencies = [];
    for (let round = 0; round < 40; round++) {
        const box = heatMap.canvas.getBoundingClientRect();
        const [row, column] = [(round * 7) % maps.rows, (round * 3) % maps.columns];
        const clientX = box.left + heatMap.left + heatMap.cellSize * (column + 0.5);
        const clientY = box.top + heatMap.top + heatMap.cellSize * (row + 0.5);
        const start = performance.now();
        heatMap.canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        latencies.push(performance.now() - start);
    }
    return latencies;
}"""


def softmax_maps(layers: int, heads: int, count: int) -> Document:
    rng = np.random.default_rng(0)
    visible = np.tril(np.ones((count, count), bool))
    scores = np.where(visible, rng.normal(size=(layers, heads, count, count)) * 2, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.where(visible, exponentials / exponentials.sum(axis=-1, keepdims=True), np.nan)
    words = tuple(f"·word{position}" for position in range(count))
    names = tuple(map(str, range(layers))), tuple(map(str, range(heads)))
    return Document("All heads", (Maps("Attention weights", weights, words, words, *names),))


def long_text(count: int = 4096, tile: int = 16, heads: int = 12, rows: int = 100) -> Document:
    rng = np.random.default_rng(0)
    tiles = np.where(
        np.tril(np.ones((count // tile,) * 2, bool)), rng.random((1, heads, count // tile, count // tile)) ** 8, np.nan
    )
    exact = Rows(tuple(range(40, count, count // rows)), rng.dirichlet(np.full(count, 0.01), size=(1, heads, rows)))
    exact = Rows(exact.positions[:rows], exact.values[:, :, : len(exact.positions)])
    words = tuple(f"·word{position}" for position in range(count))
    names = ("0",), tuple(map(str, range(heads)))
    return Document(
        "A long text",
        (Maps("Weights", tiles, words, words, *names, tile_size=tile, reduction="max", exact_rows=exact),),
    )


PAGES = {
    "an empty page": None,
    "12 x 12 heads, 128 tokens": lambda: softmax_maps(12, 12, 128),
    "4,096 tokens": long_text,
}


def memory_of(page) -> float:
    """Return the megabytes of the JavaScript heap and of canvas buffers, as counted by Chromium."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    pixels = page.evaluate(
        "(() => { const all = []; const walk = (root) => root.querySelectorAll('*').forEach((e) => {"
        " if (e.localName === 'canvas') all.push(4 * e.width * e.height); if (e.shadowRoot) walk(e.shadowRoot); });"
        " walk(document); return all.reduce((a, b) => a + b, 0); })()"
    )
    return (metrics["JSHeapTotalSize"] + pixels) / 1e6


def resident(browser) -> float:
    """Return the resident megabytes of the largest renderer process."""
    session = browser.new_browser_cdp_session()
    pids = [
        process["id"]
        for process in session.send("SystemInfo.getProcessInfo")["processInfo"]
        if process["type"] == "renderer"
    ]
    sizes = [
        int(line.split()[1])
        for pid in pids
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return max(sizes, default=0) / 1e3


def open_page(browser, path: Path):
    """Open the page and wait until all of it is shown."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 1000})
    context.add_init_script(SHOWN_TIMER)
    page = context.new_page()
    page.goto(path.as_uri())
    while page.evaluate("window.__shown === undefined"):  # the page's security policy forbids wait_for_function
        page.wait_for_timeout(5)
    return page


def measure(browser, path: Path) -> dict[str, float]:
    page = open_page(browser, path)
    if path.stem == "empty":
        return {"shown": page.evaluate("window.__shown")}
    times = page.evaluate(PAINT_TIMES)
    latencies = page.evaluate(HOVER)
    return {
        "shown": times["shown"], "repaint": times["repaint"], "hover": statistics.median(latencies),
        "worst hover": max(latencies), "heap MB": memory_of(page), "process MB": resident(browser),
    }  # fmt: skip


def main() -> None:
    print(machine())
    missed = False
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        for name, document in PAGES.items():
            path = Path(folder) / ("page.html" if document else "empty.html")
            if document:
                render.save(document(), path)
            else:
                path.write_text("<!doctype html><title>Empty</title>")
            print(f"{name}: {path.stat().st_size / 1e6:.2f} MB")
            rounds = []
            for _ in range(ROUNDS):
                browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
                rounds.append(measure(browser, path))
                browser.close()
            for key in rounds[0]:
                values = sorted(result[key] for result in rounds)
                unit = "" if key.endswith("MB") else " ms"
                print(f"  {key:<14} {statistics.median(values):8.1f}{unit}   from {values[0]:.1f} to {values[-1]:.1f}")
            medians = {key: statistics.median(result[key] for result in rounds) for key in rounds[0]}
            bounds = {"shown": BOUNDS["short" if name.startswith("12") else "long"], "hover": BOUNDS["hover"]}
            bounds["process MB"] = BOUNDS["memory"]
            missed |= any(medians[key] > maximum for key, maximum in bounds.items() if key in medians)
    sys.exit(missed)


if __name__ == "__main__":
    main()
