"""``python -m monitor.page``: a page on loopback on which people add, change, pause and remove checks."""

from __future__ import annotations

import sys
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from pollconsumer import PollConsumer, PollConsumerError

from .checks import KINDS, Check, put

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

app = PollConsumer()
MOST = 64 * 1024
"""Bytes of a form."""
ACTS: dict[str, Callable[[str], object]] = {
    "pause": app.recurrences.pause,
    "resume": app.recurrences.resume,
    "check now": app.recurrences.trigger,
    "remove": app.recurrences.remove,
}
FIELDS = ("name", "every", "target", "query", "expect", "timeout", "notify", "owner")
HOSTS = ("127.0.0.1", "localhost")
HEAD = "<!doctype html><meta charset=utf-8><title>Checks</title><h1>Checks</h1>"


def rows() -> Iterator[str]:
    for each in app.recurrences:
        rule = each.recurrence
        if rule is None or rule.handler != "check":
            continue
        seen = each.previous.result if each.previous else {}
        state = "paused" if each.paused else "well" if seen.get("ok") else "trouble" if seen else "not seen yet"
        cells = (
            each.name,
            rule.payload["target"],
            rule.cron or f"{rule.every:g} s",
            rule.created_by or "",
            state,
            seen.get("detail", ""),
        )
        acts = "".join(f"<button name=act value='{act}'>{act}</button>" for act in ACTS)
        form = f"<form method=post><input type=hidden name=name value='{escape(each.name)}'>{acts}</form>"
        yield f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in cells)}<td>{form}</td></tr>"


def page() -> str:
    kinds = "".join(f"<option>{kind}</option>" for kind in KINDS)
    fields = "".join(f"<label>{name} <input name={name}></label> " for name in FIELDS)
    form = (
        f"<form method=post>{fields}<select name=kind>{kinds}</select> <button name=act value=put>put</button></form>"
    )
    return f"{HEAD}<table>{''.join(rows())}</table>{form}"


def act(form: dict[str, str]) -> None:
    """ValueError, or an error of pollconsumer, for what cannot be done."""
    what, every, owner = form.pop("act", ""), form.pop("every", ""), form.pop("owner", "")
    if what == "put":
        timeout = float(form.pop("timeout", 10))
        put(app, Check(form.pop("name"), form.pop("kind"), form.pop("target"), **form, timeout=timeout), every, owner)
    elif what in ACTS:
        ACTS[what](form["name"])
    else:
        raise ValueError(f"cannot {what}")


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(200, page())

    def do_POST(self) -> None:
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host.partition(":")[0] not in HOSTS or origin not in (None, f"http://{host}"):
            self.answer(403, "another site's form")
            return
        form = parse_qs(self.rfile.read(min(MOST, int(self.headers.get("Content-Length", 0)))).decode())
        try:
            act({name: values[0] for name, values in form.items()})
        except (ValueError, TypeError, KeyError, PollConsumerError) as error:
            self.answer(400, f"{HEAD}<p>{escape(str(error))}</p>")
            return
        self.send_response(303)
        self.send_header("Location", "/")
        self.end_headers()

    def answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing on stderr."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8080), Page)
    sys.stdout.write(f"http://127.0.0.1:{server.server_port}/\n")
    sys.stdout.flush()
    server.serve_forever()
