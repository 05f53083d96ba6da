"""The files of the studio: those of the package, by a list made at the start; no path of a caller is ever opened."""

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from peasy.errors import NotFound
from peasy.render.html import style_sheet

PAGES = ("work", "look", "generate", "translate", "meaning", "experiments", "train", "models")
"""What the left rail leads to; each is a URL of its own and opens the same page."""

SHEETS = ("web/style.css", "web/render/page.css")
"""Where the style of drawn documents is: the file of `render` with one rule for every shade."""

MEDIA = {
    ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png",
    ".ico": "image/x-icon", ".json": "application/json", ".webmanifest": "application/manifest+json",
}  # fmt: skip


def suffix(name: str) -> str:
    """How a file's name ends, with the dot."""
    return name[name.rfind(".") :] if "." in name else ""


def listed() -> dict[str, Traversable]:
    """Every file of the page by its URL."""
    found = dict(_walk(files("peasy.studio") / "web", "/"))
    return found | dict(_walk(files("peasy.render") / "web", "/web/render/"))


def _walk(folder: Traversable, at: str) -> list[tuple[str, Traversable]]:
    if not folder.is_dir():
        return []
    inside: list[tuple[str, Traversable]] = []
    for each in folder.iterdir():
        if each.is_dir():
            inside += _walk(each, f"{at}{each.name}/")
        elif suffix(each.name) in MEDIA:
            inside.append((f"{at}{each.name}", each))
    return inside


@cache
def sheet() -> str:
    """The style of drawn documents, with a rule for every shade a cell can have."""
    return style_sheet()


def page_router() -> APIRouter:
    """The pages and their files."""
    router, known = APIRouter(include_in_schema=False), listed()

    def index(request: Request) -> Response:
        place = known.get("/index.html")
        if place is None:
            raise NotFound("The pages of the studio are not installed.")
        page = HTMLResponse(place.read_text(encoding="utf-8"))
        request.app.state.guard.welcome(page)
        return page

    def file(request: Request, path: str) -> Response:
        if path in SHEETS:
            return Response(sheet(), media_type="text/css")
        place = known.get(f"/{path}") or listed().get(f"/{path}")  # who writes pages adds files while it runs
        if place is None or path == "index.html":
            raise NotFound(f"There is no page /{path[:100]}.", hint=f"Pages: {', '.join(PAGES)}.")
        return Response(place.read_bytes(), media_type=MEDIA[suffix(path)])

    for page in ("", *PAGES):
        router.add_api_route(f"/{page}", index, methods=["GET", "HEAD"], response_model=None)
    router.add_api_route("/{path:path}", file, methods=["GET", "HEAD"], response_model=None)
    return router
