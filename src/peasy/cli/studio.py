"""`peasy studio`: local web interface."""

import sys
import webbrowser
from typing import Annotated

from cyclopts import Parameter

from peasy.cli.door import Answer, Flags, Page
from peasy.parts import need
from peasy.views.document import Document, Paragraph

Switch = Annotated[bool, Parameter(negative="", show_default=False)]


def studio(
    *models: str,
    port: int = 0,
    no_browser: Switch = False,
    flags: Flags = Flags(),
) -> Answer:
    """Open the studio: a web interface to all of peasy, on this machine only.

    For example:

        peasy studio
        peasy studio ./my-model
        peasy studio --port 8080 --no-browser

    Press Ctrl-C to stop.

    Args:
        models: Folders of your own models, in addition to those available by name.
        port: Port to listen on; 0 picks a free port.
        no_browser: Only print the address, do not open a browser.
    """
    need("torch")
    from peasy.studio.app import build
    from peasy.studio.door import address_of, bind, hold_memory, run
    from peasy.studio.house import House
    from peasy.studio.meter import write_log

    hold_memory()
    registry = House(models, device=flags.device, only=False)
    listening = bind("127.0.0.1", port)
    address = address_of(listening)
    if flags.verbose:
        write_log()

    def on_start() -> None:
        if not flags.quiet:
            print(f"The studio is running at {address} (press Ctrl-C to stop)", file=sys.stderr, flush=True)
        if not no_browser:
            webbrowser.open(address)

    run(build(registry, pages=True), listening, 5.0, on_start)
    document = Document("Studio", (Paragraph("The studio was stopped."),))
    return Answer(Page(document, {"address": address}), told=not flags.json)
