"""`peasy studio`."""

import sys
import threading
import webbrowser
from typing import Annotated

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags, Page
from peasy.parts import need
from peasy.views.document import Document, Paragraph

Switch = Annotated[bool, Parameter(negative="", show_default=False)]


def studio(
    model: str | None = None,
    *,
    port: int | None = None,
    no_browser: Switch = False,
    flags: Flags = Flags(),
) -> Answer:
    """Open the studio: all of peasy on one page in your browser, on this machine alone.

    For example:

        peasy studio
        peasy studio ./my-model
        peasy studio --port 8080 --no-browser

    Ctrl-C ends it.

    Args:
        model: A model of your own, besides those that are here.
        port: Where to listen; any free port unless you say so.
        no_browser: Only print the address.
    """
    need("torch")
    from peasy.studio.app import build
    from peasy.studio.door import bind, run
    from peasy.studio.house import House

    listening = bind("127.0.0.1", port or 0)
    house = House(device=flags.device)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    if not flags.quiet:
        print(f"The studio is open at {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if not no_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    run(build(house, pages=True), listening)
    return Answer(Page(Document("Studio", (Paragraph("The studio is closed."),)), {"address": address}), told=True)
