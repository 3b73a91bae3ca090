"""A web site that enqueues a message for each request to ``/messages/SEQUENCE``, and has the endpoint for launches.

It needs flask. Its messages are those of the kind ``site`` of `tests.cron.produce`. What was accepted is written to the
file ``accepted`` beside the configuration, in the producer's form.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint
from tests.cron.produce import KINDS, produce

ACCEPTED = os.open(
    Path(os.environ["POLLCONSUMER_CONFIG"]).with_name("accepted"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
)

app = PollConsumer()
site = Flask("site")
site.wsgi_app = DispatcherMiddleware(site.wsgi_app, {"/queue": LaunchEndpoint(app)})  # type: ignore[method-assign]


@site.post("/messages/<int:sequence>")
def send(sequence: int) -> str:
    """Enqueue a message; one write keeps its line whole between processes."""
    tried, enqueued = time.monotonic(), time.time()
    tries = produce(app, sequence, enqueued, KINDS["site"])
    os.write(ACCEPTED, f"{sequence} {enqueued:.6f} {time.monotonic() - tried:.6f} {tries}\n".encode())
    return ""
