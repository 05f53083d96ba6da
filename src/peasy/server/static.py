"""Static files of the studio, from a list of the package's files; no path that a client sends is ever opened."""

import posixpath
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse

from peasy.errors import NotFound
from peasy.render.html import style_sheet
from peasy.server.guard import Guard

PAGES = ("home", "work", "look", "generate", "translate", "meaning", "experiments", "train", "models", "glossary")
"""Pages of the navigation bar; each is a URL that serves index.html."""

_STYLE_SHEETS = ("web/style.css", "web/render/page.css")
"""Paths that serve the style sheet of rendered documents: render's page.css plus one rule for every shade."""

_MEDIA_TYPES = {
    ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png",
    ".ico": "image/x-icon", ".json": "application/json", ".webmanifest": "application/manifest+json",
}  # fmt: skip


def list_files() -> dict[str, Path]:
    """Return every static file by its URL path."""
    found = {}
    for package, folder, url_prefix in (("peasy.server", "studio", "/"), ("peasy.render", "web", "/web/render/")):
        root = Path(str(files(package) / folder))
        for path in root.rglob("*"):
            if path.suffix in _MEDIA_TYPES:
                found[url_prefix + path.relative_to(root).as_posix()] = path
    return found


_cached_style_sheet = cache(style_sheet)
_COMMENT = re.compile(rb"^(//.*|/\*\*(?:(?!\*/)[\s\S])*\*/)$", re.MULTILINE)


def served_content(source: Path, path: str) -> bytes:
    """Return a file as browsers get it: scripts without indentation and comments, a fifth of their size."""
    content = source.read_bytes()
    if source.suffix != ".js":
        return content
    # relative, so that the studio also works below the path of a proxy
    content = content.replace(b'"/web/render/', f'"{"../" * path.count("/") or "./"}web/render/'.encode())
    return _COMMENT.sub(b"", re.sub(rb"(?m)^\t+", b"", content))


_IMPORT = re.compile(r'from "([./][^"]+)"')


def _list_modules(page: str, known: dict[str, Path]) -> list[str]:
    """Return the modules of a page in the order of their imports, so that a browser requests all of them at once."""
    found = [f"/{name}" for name in ("shell.js", f"page/{page}.js") if f"/{name}" in known]
    for path in found:
        for name in _IMPORT.findall(known[path].read_text(encoding="utf-8")):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if imported not in found:
                found.append(imported)
    return found


def static_router() -> APIRouter:
    """Return the router of the pages and their files."""
    router, known = APIRouter(include_in_schema=False), list_files()

    async def index(request: Request) -> Response:
        source = known.get("/index.html")
        if source is None:
            raise NotFound("The pages of the studio are not installed.")
        modules = _list_modules(request.url.path.rpartition("/")[2] or PAGES[0], known)
        links = "\n".join(f'<link rel="modulepreload" href="{path[1:]}">' for path in modules)
        response = HTMLResponse(source.read_text(encoding="utf-8").replace("<!-- modules -->", links))
        guard: Guard = request.app.state.guard
        guard.set_csrf_cookie(response)
        return response

    async def file(request: Request, path: str) -> Response:
        if path in _STYLE_SHEETS:
            return Response(_cached_style_sheet(), media_type="text/css")
        source = known.get(f"/{path}") or list_files().get(f"/{path}")  # in development, files are added at run time
        if source is None and "text/html" in request.headers.get("accept", "") and "." not in path:
            page = await index(request)  # a person mistyped an address: the page says so and lists the others
            page.status_code = 404
            return page
        if source is None or path == "index.html":
            raise NotFound(f"There is no page /{path[:100]}.", hint=f"Pages: {', '.join(PAGES)}.")
        return Response(served_content(source, path), media_type=_MEDIA_TYPES[source.suffix])

    for page in ("", *PAGES):
        router.add_api_route(f"/{page}", index, methods=["GET", "HEAD"], response_model=None)
    router.add_api_route("/{path:path}", file, methods=["GET", "HEAD"], response_model=None)
    return router
