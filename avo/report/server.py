"""`avo report --serve`: the page over HTTP on this machine, kept as the archive is.

The server reads the archive read-only and builds the page anew when the run has changed, at most once in a second, and
of a long run for at most a quarter of the time. It answers three addresses: `/` the page, `/state` what the page asks
every two seconds, `/candidate/NO` a candidate that a page of a long run only counts. It listens on the loopback
interface, and answers only to requests that name it so: a web site that a browser has open cannot read it by pointing a
name of its own at this machine (DNS rebinding).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from archive.archive import Archive, open_archive
from archive.errors import ArchiveError
from avo.report.build import build_model
from avo.report.keeping import FULL
from avo.report.page import candidate_json, render_html

_LEAST_S = 1.0  # between two pages
_HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Dashboard:
    """The newest page of a run. run None: of the newest run, whichever that becomes."""

    def __init__(self, where: str, run: int | None) -> None:
        self._where, self._run = where, run
        self._lock = threading.Lock()
        self._page, self._version, self._built = b"", "", 0.0
        self._rest = _LEAST_S  # seconds until the next page: three times the work of the last one, where that is much

    def state(self) -> dict[str, Any]:
        with open_archive(self._where, readonly=True) as archive:
            found = self._state(archive)
        if self._page and self._rest > _LEAST_S and not self._due:
            found["version"] = self._version  # or a page that cannot be newer yet would be loaded again and again
        return found

    @property
    def _due(self) -> bool:
        return time.monotonic() - self._built >= self._rest

    def _state(self, archive: Archive) -> dict[str, Any]:
        row = archive.run(self._run)
        counts = archive.counts(row.id)
        facts = [row.id, row.state, row.ended, sorted(counts.items())]
        return {"run": row.id, "running": row.state == "running", "version": json.dumps(facts), "candidates": counts}

    def page(self) -> bytes:
        """The page of what the archive holds now."""
        with self._lock, open_archive(self._where, readonly=True) as archive:
            version = self._state(archive)["version"]
            if version != self._version and self._due:
                start = time.thread_time()
                self._page = render_html(build_model(archive, self._run, FULL), live=version).encode("utf-8")
                self._version, self._built = version, time.monotonic()
                took = time.thread_time() - start
                self._rest = 3 * took if took > _LEAST_S else _LEAST_S
            return self._page

    def candidate(self, k: int) -> bytes:
        """One candidate as the page's data has it; null where the run has none of this number."""
        with open_archive(self._where, readonly=True) as archive:
            found = candidate_json(build_model(archive, self._run, full=1, also=(k,)), k)
        return (found or "null").encode("utf-8")


def serve(where: str, run: int | None, port: int, started: Callable[[str], None]) -> None:
    """Serves until interrupted. port 0: any that is free. started is given the address. Raises OSError where the port
    is taken, ArchiveError where there is no such archive or run."""
    dashboard = Dashboard(where, run)
    dashboard.state()
    with ThreadingHTTPServer(("127.0.0.1", port), _handler(dashboard)) as server:
        server.daemon_threads = True
        started(f"http://127.0.0.1:{server.server_address[1]}/")
        server.serve_forever()


def _handler(dashboard: Dashboard) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "avo"
        sys_version = ""

        def do_GET(self) -> None:
            if self.headers.get("Host", "").rsplit(":", 1)[0] not in _HOSTS:
                self._answer(403, "text/plain", b"this server answers to 127.0.0.1 and localhost alone")
                return
            try:
                if self.path == "/":
                    self._answer(200, "text/html; charset=utf-8", dashboard.page())
                elif self.path == "/state":
                    self._answer(200, "application/json", json.dumps(dashboard.state()).encode())
                elif self.path.startswith("/candidate/") and self.path[11:].isdecimal() and len(self.path) < 30:
                    self._answer(200, "application/json", dashboard.candidate(int(self.path[11:])))
                else:
                    self._answer(404, "text/plain", b"there is /, /state and /candidate/NO")
            except ArchiveError as error:
                self._answer(503, "text/plain; charset=utf-8", str(error).encode())

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal belongs to the person."""

    return Handler
