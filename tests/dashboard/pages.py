"""Pages as a browser reads them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from starlette.testclient import TestClient

from pollconsumer import PollConsumer
from pollconsumer.dashboard.access import TokenAccess
from pollconsumer.dashboard.console import Console
from pollconsumer.dashboard.page_actions import PageActions
from pollconsumer.dashboard.page_reader import PageReader
from pollconsumer.dashboard.page_server import guarded
from pollconsumer.dashboard.server import LONGEST_FORM, Dashboard, SharedStore
from pollconsumer.store.store import Store
from pollconsumer.web.web_exchange import AsgiApplication
from tests.as_set import expected_as_set
from tests.conftest import NAMESPACE
from tests.inner import calls_of

if TYPE_CHECKING:
    from pollconsumer.dashboard.access import Access
    from pollconsumer.dashboard.page_server import Answers
    from pollconsumer.dashboard.server import PageStore
    from pollconsumer.store.client.wire import Wire

VOID = {"meta", "link", "input", "br", "img"}
HOST = "127.0.0.1:8080"
TOKEN = "a-token-of-the-tests"


class Document(HTMLParser):
    """Its elements with their attributes, its links, its text. Every element is closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def links(self) -> list[str]:
        return [link["href"] or "" for link in self.all("a")]

    def boxes(self, kind: str) -> list[tuple[float, float, float, float]]:
        """Left, upper edge, width and height of the boxes of a picture."""
        found = [each for each in self.all("rect") if each["class"] == kind]
        x, y, width, height = ([float(each[name] or 0) for each in found] for name in ("x", "y", "width", "height"))
        return list(zip(x, y, width, height, strict=True))

    def forms(self) -> list[dict[str, str]]:
        """The values that each form sends, but for that of the search."""
        forms: list[dict[str, str]] = []
        for tag, attributes in self.elements:
            if tag == "form":
                forms.append({})
            elif tag == "input" and "value" in attributes:
                forms[-1][attributes["name"] or ""] = attributes["value"] or ""
        return [form for form in forms if form]


def reading(wire: Wire) -> PageReader:
    return PageReader(Store(wire, NAMESPACE), expected_as_set(), None)


def pages_of(store: PageStore, access: Access, app: PollConsumer | None = None) -> Dashboard:
    """``app``: makes what forms ask for."""
    calls = calls_of(app or PollConsumer())
    console = Console(lambda _: calls)
    return Dashboard(store, lambda store: reading(store.wire), access, NAMESPACE, console)


def acting(wire: Wire, **options: Any) -> PageActions:
    calls = calls_of(PollConsumer())
    return PageActions(Store(wire, NAMESPACE), Console(lambda _: calls), "ada", **options)


def answers(wire: Wire, app: PollConsumer | None = None, *, token: str | None = None, acts: bool = False) -> Answers:
    """Those of a server of our own."""
    pages = pages_of(SharedStore(Store(wire, NAMESPACE)), TokenAccess(token, acts=acts, port=8080), app)
    return guarded(pages.answer, "127.0.0.1")


def browser(wire: Wire, app: PollConsumer | None = None, *, token: str | None = None, acts: bool = False) -> TestClient:
    """One that has opened no page yet."""
    site = AsgiApplication(answers(wire, app, token=token, acts=acts), lambda _: LONGEST_FORM + 1)
    return TestClient(site, base_url=f"http://{HOST}", follow_redirects=False)


def admitted(wire: Wire, app: PollConsumer | None = None) -> TestClient:
    """One that may act."""
    client = browser(wire, app, token=TOKEN, acts=True)
    assert client.get("/", params={"token": TOKEN}).status_code == 303
    return client


def seen(client: TestClient, address: str) -> Document:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return Document(answer.text)
