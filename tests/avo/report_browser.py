"""A headless Chromium driven over its DevTools pipe: no driver, no socket, no dependency."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_BAD = ("error", "warning", "assert")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser process. `open` gives a page; everything that it logged, threw or requested is kept on it."""

    def __init__(self, executable: str) -> None:
        self._profile = tempfile.mkdtemp(prefix="avo-browser-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def place() -> None:  # Chromium reads commands from descriptor 3 and writes to 4
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [
                executable,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "--no-first-run",
                "--remote-debugging-pipe",
                f"--user-data-dir={self._profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=place,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, params: dict[str, Any] | None = None, session: str = "", timeout: float = 60) -> Any:
        self._last += 1
        message = {"id": self._last, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + timeout
        while True:
            reply = self._receive(end - time.monotonic())
            if reply.get("id") == self._last:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            if "method" in reply:
                self.events.append(reply)

    def _receive(self, timeout: float) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self._buffer += piece
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        return message

    def open(self, path: Path, width: int = 1024, height: int = 900, dark: bool = False, fragment: str = "") -> Page:
        return self.visit(path.resolve().as_uri() + fragment, width, height, dark)

    def visit(self, address: str, width: int = 1024, height: int = 900, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        page.call("Page.navigate", {"url": address})
        page.wait("document.documentElement?.hasAttribute('data-ready')")
        return page

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close", timeout=5)
            self._process.wait(10)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)


class Page:
    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self._browser.call(method, params, self._session)

    def evaluate(self, expression: str) -> Any:
        reply = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True, "awaitPromise": True})
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"].get("exception", {}).get("description", str(reply)))
        return reply["result"].get("value")

    def wait(self, expression: str, timeout: float = 30) -> None:
        end = time.monotonic() + timeout
        while not self.evaluate(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {expression}; trouble: {self.trouble()}")
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def click(self, selector: str) -> None:
        """A real mouse click in the middle of the element, after it has been scrolled into view."""
        quoted = json.dumps(selector)
        box = self.evaluate(
            f"(() => {{ const e = document.querySelector({quoted}); e.scrollIntoView({{block: 'center', behavior: "
            "'instant'}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                {"type": kind, "x": box[0], "y": box[1], "button": "left", "clickCount": 1},
            )

    def key(self, name: str) -> None:
        codes = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13, "Home": 36, "Tab": 9}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": codes[name]},
            )

    def screenshot(self, path: Path, whole: bool = True) -> None:
        params: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            params["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", params)["data"]))

    def _events(self, method: str) -> list[dict[str, Any]]:
        return [
            e["params"] for e in self._browser.events if e["method"] == method and e.get("sessionId") == self._session
        ]

    def trouble(self) -> list[str]:
        """Exceptions, console warnings and errors, policy violations."""
        self.evaluate("0")  # everything that happened before has been reported by the time this is answered
        thrown = [str(e["exceptionDetails"]) for e in self._events("Runtime.exceptionThrown")]
        said = [str(e["args"]) for e in self._events("Runtime.consoleAPICalled") if e["type"] in _BAD]
        logged = [str(e["entry"]) for e in self._events("Log.entryAdded") if e["entry"]["level"] in _BAD]
        return thrown + said + logged

    def requests(self) -> list[str]:
        """Addresses that the page asked for, itself and inline data left out."""
        asked = [e["request"]["url"] for e in self._events("Network.requestWillBeSent")]
        main = [e["documentURL"] for e in self._events("Network.requestWillBeSent")][:1]
        return [u for u in asked if u not in main and not u.startswith("data:")]
