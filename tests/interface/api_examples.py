"""An example for each main name of the API: shown in docs/reference/api.md, and run by a test."""

from __future__ import annotations

EXAMPLES = {
    "PollConsumer": """
from pollconsumer import PollConsumer

app = PollConsumer()  # settings of the command line, the environment, config.toml


@app.handler("mail.send", queue="mail", timeout="30s")
def send(to: str, subject: str = "") -> str:
    return f"sent to {to}"


@app.every("0 9 * * 1-5", timezone="Europe/Paris")
def digest() -> None: ...


send.enqueue(to="ada@example.org")
app.enqueue("mail.send", {"to": "ada@example.org"}, queue="mail")  # by name, without the handler's code
""",
    "Backoff": """
from pollconsumer import Backoff, PollConsumer

app = PollConsumer()


@app.handler(max_attempts=8, retry=Backoff(first="5s", factor=3, most="1h"))
def fetch(url: str) -> None: ...
""",
    "Context": """
from pollconsumer import Context, PollConsumer, Yield

app = PollConsumer()


@app.handler
def load(context: Context, rows: int) -> None:
    at = (context.state or {}).get("at", 0)  # the checkpoint of an earlier attempt
    while at < rows:
        if context.cancelled:
            raise Yield  # the next launch continues
        at += 1
        context.progress(at, rows)
        context.checkpoint({"at": at})
    context.enqueue("loaded", {"rows": rows})  # with the completion, or not at all


@app.handler
def loaded(rows: int) -> None: ...


load.enqueue(rows=3)
""",
    "Draft": """
from pollconsumer import Draft, PollConsumer

app = PollConsumer()


@app.before_enqueue
def add_origin(draft: Draft) -> None:
    draft.headers["origin"] = "shop"
""",
    "Fatal": """
from pollconsumer import Fatal, PollConsumer, RetryIn

app = PollConsumer()


@app.handler
def charge(order: int, status: int) -> None:
    if status == 404:
        raise Fatal(f"no order {order}")  # a dead letter, at once
    if status == 429:
        raise RetryIn("1m")  # not before a minute has passed
""",
    "Handle": """
from pollconsumer import PollConsumer

app = PollConsumer()


@app.handler
def add(a: int, b: int) -> int:
    return a + b


handle = add.using(in_="10m", key="sum").enqueue(a=1, b=2)
handle.id, handle.duplicate, handle.state  # the store's id, False, "scheduled"
handle.reschedule(in_="5m")
handle.cancel()
""",
    "RetryPolicy": """
from pollconsumer import PollConsumer


class Patient:
    def delay(self, attempt: int, chance: float, /) -> float:
        return 60.0 * attempt


app = PollConsumer()
app.retry_policy("patient", Patient())


@app.handler
def report(day: int) -> None: ...


report.using(retry="patient").enqueue(day=1)
""",
    "app.handler(…)": """
from pollconsumer import PollConsumer

app = PollConsumer()


@app.handler
def resize(path: str, width: int = 800) -> None: ...


resize("a.png")  # still a function
resize.enqueue("a.png", width=200)
resize.enqueue_many([resize.args(path) for path in ("b.png", "c.png")])
resize.using(priority=-1, expires="1h").enqueue(path="d.png")
""",
    "app.messages(…)": """
from pollconsumer import PollConsumer

app = PollConsumer()


@app.handler
def ping(host: str) -> None: ...


ping.using(in_="1h").enqueue("a")
for handle in app.messages(state="scheduled", handler="ping"):
    print(handle.id, handle.listed.payload)
app.messages(handler="ping").cancel_all()
""",
    "app.batch(…)": """
from pollconsumer import Context, PollConsumer

app = PollConsumer()


@app.handler
def load(path: str) -> int:
    return len(path)


@app.handler
def report(context: Context, day: int) -> None:
    if context.batch:  # a callback of a batch
        print(day, sum(each.result for each in context.batch.results()), "of", context.batch.total)


with app.batch("import-42", then=report.args(day=1)) as batch:
    for path in ("a.csv", "b.csv"):
        batch.add(load.args(path))
app.batches.get("import-42").state  # "closed", then "ended"
""",
    "app.chain(…)": """
from pollconsumer import Context, PollConsumer

app = PollConsumer()


@app.handler
def fetch(url: str) -> str:
    return "one two"


@app.handler
def count(context: Context) -> int:
    return len(context.previous.result.split()) if context.previous else 0


last = app.chain(fetch.args("https://example.org/"), count.args()).enqueue()
last.state  # "waiting", until the first link is completed
""",
    "app.recurrences": """
from pollconsumer import PollConsumer

app = PollConsumer()


@app.handler
def check(url: str) -> bool:
    return True


app.recurrences.put("check:42", every="5m", handler="check", payload={"url": "https://example.org/"})
app.recurrences.get("check:42").next  # a datetime
app.recurrences.pause("check:42")
app.recurrences.remove("check:42")
""",
    "pollconsumer.testing.Sandbox": """
from pollconsumer import PollConsumer
from pollconsumer.testing import Sandbox

app = PollConsumer()


@app.handler
def greet(name: str) -> str:
    return f"hello {name}"


with Sandbox(app) as sandbox:
    handle = greet.using(in_="1h").enqueue("Ada")
    sandbox.advance("1h")
    assert sandbox.run().handled == 1
    assert sandbox.message(handle).result == "hello Ada"
""",
    "pollconsumer.web.LaunchEndpoint": """
from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint

application = LaunchEndpoint(PollConsumer())  # for WSGI; application.asgi, application.aws
""",
    "pollconsumer.dashboard.DashboardEndpoint": """
from pollconsumer import PollConsumer
from pollconsumer.dashboard import DashboardEndpoint, Visitor


def visitor(environ):
    name = environ.get("REMOTE_USER")
    return Visitor(name, acts=name == "ada") if name else None


application = DashboardEndpoint(PollConsumer(), visitor)  # for WSGI; application.asgi
""",
    "pollconsumer.django.PollConsumerBackend": """
TASKS = {"default": {"BACKEND": "pollconsumer.django.PollConsumerBackend", "OPTIONS": {"max_attempts": 3}}}
""",
}
"""By the title of the section that shows it."""
