"""`peasy studio`."""

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
    """Open the studio: all of peasy on one page in your browser, on this machine alone.

    For example:

        peasy studio
        peasy studio ./my-model
        peasy studio --port 8080 --no-browser

    Ctrl-C ends it.

    Args:
        models: Folders of your own models, besides those that are here by name.
        port: Where to listen; 0 takes any that is free.
        no_browser: Only print the address.
    """
    need("torch")
    from peasy.studio.app import build
    from peasy.studio.door import address_of, bind, hold_memory, run
    from peasy.studio.house import House
    from peasy.studio.meter import write_log

    hold_memory()
    house = House(models, device=flags.device, only=False)
    listening = bind("127.0.0.1", port)
    address = address_of(listening)
    if flags.verbose:
        write_log()

    def opened() -> None:
        if not flags.quiet:
            print(f"The studio is open at {address} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        if not no_browser:
            webbrowser.open(address)

    run(build(house, pages=True), listening, 5.0, opened)
    page = Document("Studio", (Paragraph("The studio is closed."),))
    return Answer(Page(page, {"address": address}), told=not flags.json)
