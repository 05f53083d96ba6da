"""How fast pages of looking are in Chromium: all heads of a GPT-2 shape, a long text, an answer to the pointer.

    python -m bench.page

Each page is opened five times, in a browser of its own, with the network off. "Shown" is from the start of navigation
to the first frame after the picture is complete, and what an empty page takes for that is said first; memory is that of
the page's renderer process; hover is from the event to the next frame.
A bound that is broken is exit code 1.
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
from peasy.views import Document, Maps, Rows

ROUNDS = 5
BOUNDS = {"drawn": 500.0, "opened": 2000.0, "memory": 500.0, "hover": 50.0}

DRAWN = """async () => {
    const maps = document.querySelector("peasy-maps");
    await maps.ready;
    const built = performance.now();
    maps.repaint();
    const again = performance.now() - built;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    return { again, shown: window.__shown };
}"""

SHOWN = """new Promise((done) => document.addEventListener("DOMContentLoaded", done)).then(async () => {
    await document.querySelector("peasy-maps")?.ready;
    requestAnimationFrame(() => setTimeout(() => { window.__shown = performance.now(); }));
});"""

HOVER = """async () => {
    const maps = document.querySelector("peasy-maps");
    const { chart } = maps;
    const took = [];
    for (let turn = 0; turn < 40; turn++) {
        const box = chart.canvas.getBoundingClientRect();
        const [row, column] = [(turn * 7) % maps.rows, (turn * 3) % maps.columns];
        const clientX = box.left + chart.left + chart.cell * (column + 0.5);
        const clientY = box.top + chart.top + chart.cell * (row + 0.5);
        const start = performance.now();
        chart.canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true }));
        await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        took.push(performance.now() - start);
    }
    return took;
}"""


def softmax_maps(layers: int, heads: int, count: int) -> Document:
    rng = np.random.default_rng(0)
    seen = np.tril(np.ones((count, count), bool))
    scores = np.where(seen, rng.normal(size=(layers, heads, count, count)) * 2, -np.inf)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = np.where(seen, raised / raised.sum(axis=-1, keepdims=True), np.nan)
    words = tuple(f"·word{place}" for place in range(count))
    names = tuple(map(str, range(layers))), tuple(map(str, range(heads)))
    return Document("All heads", (Maps("Attention weights", weights, words, words, *names),))


def long_text(count: int = 4096, tile: int = 16, heads: int = 12, rows: int = 100) -> Document:
    rng = np.random.default_rng(0)
    tiles = np.where(
        np.tril(np.ones((count // tile,) * 2, bool)), rng.random((1, heads, count // tile, count // tile)) ** 8, np.nan
    )
    exact = Rows(tuple(range(40, count, count // rows)), rng.dirichlet(np.full(count, 0.01), size=(1, heads, rows)))
    exact = Rows(exact.positions[:rows], exact.values[:, :, : len(exact.positions)])
    words = tuple(f"·word{place}" for place in range(count))
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
    """Megabytes of JavaScript and of the picture buffers that the page holds, as Chromium counts them."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    counted = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    pixels = page.evaluate(
        "(() => { const all = []; const walk = (root) => root.querySelectorAll('*').forEach((e) => {"
        " if (e.localName === 'canvas') all.push(4 * e.width * e.height); if (e.shadowRoot) walk(e.shadowRoot); });"
        " walk(document); return all.reduce((a, b) => a + b, 0); })()"
    )
    return (counted["JSHeapTotalSize"] + pixels) / 1e6


def resident(browser) -> float:
    """Megabytes of the largest renderer process, from the system."""
    session = browser.new_browser_cdp_session()
    pids = [
        each["id"] for each in session.send("SystemInfo.getProcessInfo")["processInfo"] if each["type"] == "renderer"
    ]
    sizes = [
        int(line.split()[1])
        for pid in pids
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return max(sizes, default=0) / 1e3


def open_page(browser, path: Path):
    """The page, once all of it is shown, and after how many milliseconds that was."""
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 1000})
    context.add_init_script(SHOWN)
    page = context.new_page()
    page.goto(path.as_uri())
    while page.evaluate("window.__shown === undefined"):  # the page's policy forbids waiting for a function of ours
        page.wait_for_timeout(5)
    return page


def measure(browser, path: Path) -> dict[str, float]:
    page = open_page(browser, path)
    if path.stem == "empty":
        return {"shown": page.evaluate("window.__shown")}
    found = page.evaluate(DRAWN)
    took = page.evaluate(HOVER)
    return {
        "shown": found["shown"], "repaint": found["again"], "hover": statistics.median(took), "worst hover": max(took),
        "heap MB": memory_of(page), "process MB": resident(browser),
    }  # fmt: skip


def main() -> None:
    print(machine())
    failed = False
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        for name, document in PAGES.items():
            path = Path(folder) / ("page.html" if document else "empty.html")
            if document:
                render.save(document(), path)
            else:
                path.write_text("<!doctype html><title>Nothing</title>")
            print(f"{name}: {path.stat().st_size / 1e6:.2f} MB")
            rounds = []
            for _ in range(ROUNDS):
                browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
                rounds.append(measure(browser, path))
                browser.close()
            for key in rounds[0]:
                each = sorted(one[key] for one in rounds)
                unit = "" if key.endswith("MB") else " ms"
                print(f"  {key:<14} {statistics.median(each):8.1f}{unit}   from {each[0]:.1f} to {each[-1]:.1f}")
            middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
            bounds = {"shown": BOUNDS["drawn" if name.startswith("12") else "opened"], "hover": BOUNDS["hover"]}
            bounds["process MB"] = BOUNDS["memory"]
            failed |= any(middle[key] > most for key, most in bounds.items() if key in middle)
    sys.exit(failed)


if __name__ == "__main__":
    main()
