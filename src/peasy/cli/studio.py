"""`peasy studio`: local web interface."""

import sys
import webbrowser

from peasy.cli.command import CommandOutput, DocumentResult, Flags, Switch
from peasy.extras import require_extra
from peasy.views.document import Document, Paragraph


def studio(
    *models: str,
    port: int = 0,
    no_browser: Switch = False,
    flags: Flags = Flags(),
) -> CommandOutput:
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
    require_extra("torch")
    from peasy.server.app import build_app
    from peasy.server.metrics import configure_logging
    from peasy.server.model_registry import ModelRegistry
    from peasy.server.server import bind, limit_memory_growth, run_server, url_of

    limit_memory_growth()
    registry = ModelRegistry(models, device=flags.device, only_given=False)
    listening = bind("127.0.0.1", port)
    address = url_of(listening)
    if flags.verbose:
        configure_logging()

    def on_start() -> None:
        if not flags.quiet:
            print(f"The studio is running at {address} (press Ctrl-C to stop)", file=sys.stderr, flush=True)
        if not no_browser:
            webbrowser.open(address)

    run_server(build_app(registry, pages=True), listening, 5.0, on_start)
    document = Document("Studio", (Paragraph("The studio was stopped."),))
    return CommandOutput(DocumentResult(document, {"address": address}), already_printed=not flags.json)
