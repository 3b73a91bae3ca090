"""Every button of the dashboard, clicked in headless Chromium, where Debian's is installed."""

from __future__ import annotations

import sys
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.recurrence_actions import Recurrences
from tests.conftest import NAMESPACE
from tests.dashboard.batch_scene import a_batch
from tests.dashboard.chromium import BEYOND, MISSING, Chromium
from tests.dashboard.pages import acting, reading
from tests.dashboard.scenes import Scene, bad_hour
from tests.dashboard.shop import PAGES as SHOP_PAGES
from tests.dashboard.shop import open_shop
from tests.site import wait_until
from tests.store.acting import HOUR, QUEUE, message
from tests.store.batching import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.store.client.wire import Wire
    from tests.site import Site
    from tests.store.servers import Server

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")

PAGES = (
    "",
    "queue?name=mail",
    "queue?name=mail&state=dead",
    "message?queue=mail&id=dead-1",
    "message?queue=mail&id=scheduled",
    "dead?queue=mail",
    "handler?name=mail.send",
    "enqueue?handler=fatal",
    "put?name=hourly",
    "recurrence?name=check",
    f"batch?queue={HOME}&id=b",
)
LAST = "purge_all redrive_all remove_recurrence"
"""These leave nothing for the others to do."""
BUTTONS = "form[action=act] button"
WHAT = "return Array.from(document.querySelectorAll('form[action=act]'), each => each.elements.what.value)"
VALUES = "return Array.from(document.querySelectorAll('form[action=act] input'), each => [each.name, each.value])"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture
def wire(valkey: Server) -> Wire:
    return valkey.wire()


@pytest.fixture
def address(valkey: Server, wire: Wire, site: Site) -> Iterator[str]:
    """Of a dashboard with actions, its token included."""
    bad_hour(Scene(wire, NAMESPACE, share=0.02))
    command = [sys.executable, "-m", "pollconsumer", "--store", valkey.url, "--namespace", NAMESPACE, "dashboard"]
    process = site.start_program([*command, "--port", "0", "--allow-actions"])
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.communicate(timeout=90)


def clicked(chromium: Chromium, what: str) -> None:
    """Click the first button that does this, behind the question whether it is meant."""
    for summary in chromium.all(f"details.ask:has(input[name=what][value={what}]) > summary")[:1]:
        chromium.click(summary)
    chromium.follow(chromium.all(BUTTONS)[chromium.run(WHAT).index(what)])


def test_every_button_does_what_it_says(chromium: Chromium, wire: Wire, address: str) -> None:
    Scene(wire, NAMESPACE).store.enqueue([message("scheduled", delay=HOUR)])
    hourly = Recurrence("hourly", "fatal", every=3600.0, at_run_time=True)
    Recurrences(wire, NAMESPACE).put([(hourly, "next")])
    a_batch(wire)
    chromium.open(address)
    bare = chromium.address
    assert bare == address.partition("?")[0]
    done = set()
    for page in PAGES:
        clicked_here: set[str] = set()
        while True:
            if chromium.address.partition("done=")[0].rstrip("?&") != bare + page:  # a page costs half a second
                chromium.open(bare + page)
            left = [what for what in chromium.run(WHAT) if what not in clicked_here]
            if not left:
                break
            clicked(chromium, what := min(left, key=lambda each: LAST.find(each)))
            assert chromium.all("[role=status]"), f"{what} of {page}: {chromium.text}"
            clicked_here.add(what)
        done |= clicked_here
    assert done == acting(wire).actions.keys()
    found = reading(wire)
    assert found.message("dead-1", QUEUE).message.generation == 1
    assert found.message("scheduled", QUEUE).message.state == "cancelled"


@pytest.mark.crossing
def test_the_search_leads_to_a_message(chromium: Chromium, address: str) -> None:
    chromium.open(address)
    chromium.run("document.querySelector('input[type=search]').value = 'dead-1'")
    chromium.follow(chromium.all("form[role=search] button")[0])
    assert "Search: dead-1" in chromium.text
    chromium.follow(chromium.all("main li a")[0])
    assert "message?queue=mail&id=dead-1" in chromium.address


def test_the_search_by_a_header_leads_to_a_message(chromium: Chromium, wire: Wire, address: str) -> None:
    Scene(wire, NAMESPACE).store.enqueue([message("labelled", headers={"customer": "7"})])
    chromium.open(address)
    chromium.follow(chromium.all("form[role=search] a")[0])
    chromium.run("document.querySelector('input[name=header]').value = 'customer=7'")
    chromium.follow(chromium.all("main form button")[0])
    assert "Search: customer=7" in chromium.text
    chromium.follow(chromium.all("tbody th a")[0])
    assert "message?queue=mail&id=labelled" in chromium.address


@pytest.mark.crossing
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_page_of_another_server_cannot_press_a_button(
    host: str, chromium: Chromium, wire: Wire, address: str
) -> None:
    """It knows the form's secret, even; on 127.0.0.1, the browser sends it our cookie."""
    chromium.open(address)
    bare = chromium.address
    chromium.open(f"{bare}message?queue=mail&id=dead-1")
    values = chromium.run(VALUES)
    inputs = "".join(f'<input name="{name}" value="{escape(value)}">' for name, value in values)
    form = f'<form method="post" action="{bare}act">{inputs}<button>Win</button></form>'

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(form.encode())

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        chromium.open(f"http://{host}:{server.server_port}/")
        chromium.follow(chromium.all("button")[0])
        assert "Access denied" in chromium.text if host == "localhost" else "Refused" in chromium.text
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert reading(wire).message("dead-1", QUEUE).message.state == "dead"


READY = "return document.querySelector('table.counts tbody td[data-label=ready]').innerText"


def test_live_numbers_change_without_a_reload_but_not_while_a_button_is_about_to_be_pressed(
    chromium: Chromium, wire: Wire, address: str
) -> None:
    store = Scene(wire, NAMESPACE).store
    chromium.open(address)
    assert "live" in chromium.text
    chromium.open(f"{chromium.address}?refresh=2")
    before = chromium.run(READY)
    chromium.run("window.isTheSame = true; document.querySelector('details.ask > summary').click()")
    store.enqueue([message("one-more")])
    threading.Event().wait(5)
    assert chromium.run(READY) == before
    chromium.run("document.querySelector('details.ask > summary').click()")
    wait_until(lambda: chromium.run(READY) != before, "the new number")
    assert chromium.run("return window.isTheSame")
    assert "bad" not in chromium.run("return document.querySelector('.asof').className")


LINES = """
const high = document.querySelector("table.counts tbody tr").getBoundingClientRect().height;
return [high / parseFloat(getComputedStyle(document.body).lineHeight), document.body.scrollWidth - window.innerWidth];
"""


BEGINNINGS = """
const table = document.querySelector("table.counts"), edge = table.getBoundingClientRect().left;
const lines = Array.from(table.querySelectorAll("tbody td"), each => Array.from(each.getClientRects())).flat();
return Math.min(...lines.filter(line => line.width).map(line => line.left - edge));
"""


def test_a_narrow_screen_shows_a_queue_in_five_lines_none_of_which_begins_at_the_edge(
    chromium: Chromium, address: str
) -> None:
    with chromium.screen(390, 844):
        chromium.open(address)
        lines, beyond = chromium.run(LINES)
        assert lines < 6  # with its padding
        assert beyond <= 0
        assert chromium.run(BEGINNINGS) >= 8


ENDS = """
return Array.from(document.querySelectorAll(".hour"), ({firstElementChild, lastElementChild}) =>
  Math.min(firstElementChild.offsetWidth, lastElementChild.offsetWidth));
"""


def test_a_narrow_screen_shows_where_each_scale_begins_and_ends(chromium: Chromium, address: str) -> None:
    chromium.open(address)
    bare = chromium.address
    with chromium.screen(390, 844):
        for page in ("", "past?of=week", "handler?name=mail.send"):
            chromium.open(bare + page)
            assert min(chromium.run(ENDS)) > 0, page


def test_every_page_and_form_fits_a_narrow_screen_whatever_the_names_in_it(
    chromium: Chromium, valkey: Server, site: Site
) -> None:
    command = [*open_shop(site.directory, valkey.url, site.environment), "dashboard", "--port", "0", "--allow-actions"]
    process = site.start_program(command)
    assert process.stdout is not None
    chromium.open(process.stdout.readline().strip())
    bare = chromium.address
    with chromium.screen(390, 844):
        for page in SHOP_PAGES.values():
            chromium.open(bare + page)
            chromium.run("document.querySelectorAll('details').forEach(each => each.open = true)")
            assert chromium.run(BEYOND, 390) == [], page
    process.terminate()
    process.communicate(timeout=90)


NAMES = """
const buttons = document.querySelectorAll("form[action=act] button");
return Array.from(buttons, each => each.ariaLabel + " " + each.form.what.value);
"""


def test_buttons_of_one_name_say_what_they_act_on(chromium: Chromium, address: str) -> None:
    chromium.open(address)
    bare = chromium.address
    for page in ("", "dead", "queue?name=mail&state=dead"):
        chromium.open(bare + page)
        names = chromium.run(NAMES)
        assert len(names) > 1, page
        assert len(set(names)) == len(names), page
