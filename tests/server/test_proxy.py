"""Studio behind a reverse proxy on loopback, as on JupyterHub: below a path, under another host name."""

import http.client
import re
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.server.browser_window import BrowserWindow
from tests.server.tiny_server import running_server

from peasy.server import static as studio_files
from peasy.server.app import build_app
from peasy.server.guard import LOOPBACK
from peasy.server.model_registry import ModelRegistry

ROOT = "/user/ada/proxy/8888"
HOST = "hub.localhost"  # browsers resolve it to this machine


@contextmanager
def reverse_proxy(upstream: int, *, strip: bool, keep_host: bool):
    """Forward requests below ROOT to a port; `strip` removes ROOT, `keep_host` passes the Host header on."""

    class Forward(BaseHTTPRequestHandler):
        def do_GET(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            path = self.path.removeprefix(ROOT) if strip else self.path
            if not self.path.startswith(ROOT):
                self.send_error(404)
                return
            link = http.client.HTTPConnection("127.0.0.1", upstream)
            headers = dict(self.headers) | ({} if keep_host else {"Host": f"127.0.0.1:{upstream}"})
            link.request(self.command, path or "/", body, headers)
            response = link.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.end_headers()
            while chunk := response.read1():
                self.wfile.write(chunk)
            link.close()

        do_POST = do_GET

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def proxied_studio(folders, *, strip=True, keep_host=False, allowed=(HOST,), root_path=ROOT):
    registry = ModelRegistry(folders, weights="float32")
    app = build_app(registry, pages=True, allowed_hosts=(*LOOPBACK, *allowed), root_path=root_path)
    with running_server(app) as port, reverse_proxy(port, strip=strip, keep_host=keep_host) as proxy:
        yield proxy


@pytest.mark.browser
@pytest.mark.parametrize("strip", [True, False], ids=["path removed", "path kept"])
@pytest.mark.parametrize("keep_host", [True, False], ids=["host kept", "host replaced"])
def test_the_studio_works_below_a_path(browser, folders, strip, keep_host):
    with proxied_studio(folders, strip=strip, keep_host=keep_host) as port:
        window = BrowserWindow(browser, port)
        window.origin = f"http://{HOST}:{port}"
        requested = []
        window.page.on("request", lambda request: requested.append(request.url))
        page = window.open(f"{ROOT}/")
        assert page.locator("#place").inner_text()
        page.locator('a[data-page="generate"]').click()
        window.wait_until_idle()
        assert page.url.startswith(f"{window.origin}{ROOT}/generate")
        page.reload()
        window.wait_until_idle()
        window.open(f"{ROOT}/look?m=writer&t=hello")
        assert any("/api/" in url for url in requested)
        assert all(url.startswith((f"{window.origin}{ROOT}/", "data:", "blob:")) for url in requested)
        cookies = [cookie for cookie in window.context.cookies() if cookie["name"] == "peasy"]
        assert [cookie["path"] for cookie in cookies] == [f"{ROOT}/"]
        assert not window.console_errors
        window.context.close()


def post(port: int, *, host: str, origin: str, site: str) -> int:
    """Return the status of a POST through the proxy, with the cookie that a page has."""
    base = f"http://127.0.0.1:{port}{ROOT}"
    page = urllib.request.urlopen(urllib.request.Request(f"{base}/", headers={"Host": f"{host}:{port}"}))
    headers = {
        "Host": f"{host}:{port}", "Origin": origin, "Sec-Fetch-Site": site, "content-type": "application/json",
        "Cookie": page.headers["set-cookie"].partition(";")[0],
    }  # fmt: skip
    try:
        return urllib.request.urlopen(urllib.request.Request(f"{base}/api/models", b"{}", headers)).status
    except urllib.error.HTTPError as error:
        return error.code


def test_only_pages_of_the_allowed_host_are_trusted(folders):
    with proxied_studio(folders) as port:
        assert post(port, host=HOST, origin=f"http://{HOST}:{port}", site="same-origin") == 200
        assert post(port, host=HOST, origin=f"http://{HOST}:1", site="same-site") == 403
        assert post(port, host=HOST, origin="http://evil.example", site="same-origin") == 403
        assert post(port, host=HOST, origin="http://localhost:9", site="same-origin") == 403


def test_without_allow_host_the_proxy_is_refused(folders):
    with proxied_studio(folders, keep_host=True, allowed=()) as port:
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(port, host=HOST, origin=f"http://{HOST}:{port}", site="same-origin")
        assert caught.value.code == 421
    with proxied_studio(folders, allowed=()) as port:
        assert post(port, host=HOST, origin=f"http://{HOST}:{port}", site="same-origin") == 403


def test_no_address_of_the_pages_is_absolute():
    """An address that begins with a slash would leave the path of the proxy; imports are made relative when served."""
    absolute = re.compile(r"""(?:href|src)[=:]\s*["'`]/|(?:fetch|send|stream|fetchFile)\(\s*["'`]/""")
    folder = Path(studio_files.__file__).parent / "studio"
    files = [path for path in folder.rglob("*") if path.suffix in (".js", ".html")]
    assert len(files) > 20
    found = [path.name for path in files if absolute.search(path.read_text(encoding="utf-8"))]
    assert not found
    assert absolute.search('fetch("/api/look")')
