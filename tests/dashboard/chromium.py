"""Debian's headless Chromium, driven through its chromedriver: WebDriver is JSON over HTTP."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from tests.site import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update",
    "--disable-background-networking", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--allow-file-access-from-files",
)  # fmt: skip
PATIENCE = 90.0
"""Seconds for each answer."""
MISSING = " and ".join(name for name in ("chromium", "chromedriver") if shutil.which(name) is None)
"""What is not installed."""
BEYOND = """
const beyond = each => each.getBoundingClientRect().right > arguments[0] + 1 && !each.closest(".skip");
const found = Array.from(document.querySelectorAll("body *")).filter(beyond);
return found.map(each => each.tagName + " " + each.textContent.trim().slice(0, 40));
"""
"""A script that returns the elements which are not whole on a screen of the width that it is given."""
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_SEND = """
const form = document.querySelector(arguments[0]);
for (const [name, value] of Object.entries(arguments[1])) if (form.elements[name]) form.elements[name].value = value;
form.submit();
"""
_DIRECT = build_opener(ProxyHandler({}))


class Chromium:
    """One with a profile of its own, from ``with`` to its end. An element is its id in the page that is open."""

    def __init__(self, width: int = 1280, height: int = 1000) -> None:
        self._size = width, height
        self._held = ExitStack()

    def __enter__(self) -> Chromium:
        with self._held as held:
            profile = held.enter_context(tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True))
            driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
            held.callback(_ended, driver)
            assert driver.stdout is not None
            said = ""
            while (found := re.search(r"on port (\d+)\.", said)) is None:
                said = driver.stdout.readline()
                assert said, "chromedriver ended"
            self._driver = f"http://127.0.0.1:{found[1]}/session"
            flags = [*FLAGS, f"--user-data-dir={profile}", "--window-size={},{}".format(*self._size)]
            options = {"goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")}}
            begun = _answer("POST", self._driver, {"capabilities": {"alwaysMatch": options}})
            self._session = f"{self._driver}/{begun['sessionId']}"
            held.callback(_answer, "DELETE", self._session)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def open(self, address: str) -> None:
        self._post("url", {"url": address})

    @property
    def address(self) -> str:
        return str(_answer("GET", f"{self._session}/url"))

    @property
    def text(self) -> str:
        """Of the page, as it is seen."""
        return str(self.run("return document.body.innerText"))

    def all(self, selector: str) -> list[str]:
        found = self._post("elements", {"using": "css selector", "value": selector})
        return [each[_ELEMENT] for each in found]

    def click(self, element: str) -> None:
        """As a person does: an element that is not seen, or covered, is an error."""
        self._post(f"element/{element}/click", {})

    def follow(self, element: str) -> None:
        """Click it, and wait for the page that it opens."""
        self.run("window.isLeft = true")
        self.click(element)
        wait_until(self._has_another_page, "another page")

    def send(self, form: str, **values: str) -> None:
        """Send the first form that is so selected, with these values where it has inputs of their names."""
        self.run("window.isLeft = true")
        self.run(_SEND, form, values)
        wait_until(self._has_another_page, "another page")

    def _has_another_page(self) -> bool:
        try:
            return bool(self.run("return !window.isLeft && document.readyState == 'complete'"))
        except AssertionError:  # it is being replaced
            return False

    def run(self, script: str, *arguments: Any) -> Any:
        return self._post("execute/sync", {"script": script, "args": arguments})

    @contextmanager
    def screen(self, width: int, height: int, *, dark: bool = False) -> Iterator[None]:
        """Has a screen of that size, which may be narrower than a window. ``dark``: its user prefers that."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
        prefers = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setDeviceMetricsOverride", size)
        self._tell("Emulation.setEmulatedMedia", {"features": [prefers]})
        yield
        self._tell("Emulation.setEmulatedMedia", {"features": []})
        self._tell("Emulation.clearDeviceMetricsOverride", {})

    def picture(self, file: Path) -> None:
        """Take a picture of the whole page, also of what is below the screen."""
        width, height = self.run("const page = document.documentElement; return [page.scrollWidth, page.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self._tell("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        file.write_bytes(base64.b64decode(found["data"]))

    def _tell(self, command: str, parameters: dict[str, Any]) -> Any:
        return self._post("goog/cdp/execute", {"cmd": command, "params": parameters})

    def _post(self, what: str, value: Any) -> Any:
        return _answer("POST", f"{self._session}/{what}", value)


def _answer(method: str, address: str, value: Any = None) -> Any:
    body = None if value is None else json.dumps(value).encode()
    asked = Request(address, body, {"Content-Type": "application/json"}, method=method)
    try:
        with _DIRECT.open(asked, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]
    except HTTPError as error:
        with error:
            raise AssertionError(json.load(error)["value"]["message"]) from None


def _ended(driver: subprocess.Popen[str]) -> None:
    driver.terminate()
    driver.communicate(timeout=PATIENCE)
