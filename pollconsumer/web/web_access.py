"""Who may call: who has the token; for a launch, App Engine's cron, too."""

from __future__ import annotations

import os
from typing import Literal

from pollconsumer.interface.settings.model import WebSettings
from pollconsumer.web.web_exchange import WebAnswer, WebRequest, equal_secrets, refusal

SCHEME = "bearer "
TokenName = Literal["token", "enqueue_token"]
"""The setting that a request's token is compared with."""


def refused(request: WebRequest, settings: WebSettings, name: TokenName) -> WebAnswer | None:
    """The answer to a request without the token that it needs; None if it may go on."""
    if name == "token" and _is_of_app_engine(request):
        return None
    token: str | None = getattr(settings, name)
    if token is None:
        return refusal(403, f"web.{name} is unset: every request is refused; set it, or its variable")
    given = request.headers.get("authorization", "")
    if given[: len(SCHEME)].lower() == SCHEME and equal_secrets(given[len(SCHEME) :].strip(), token):
        return None
    return refusal(401, f"send the header Authorization: Bearer, with web.{name}", ("WWW-Authenticate", "Bearer"))


def _is_of_app_engine(request: WebRequest) -> bool:
    """Whether App Engine's cron sends the request. There, a header of that name is taken from all other requests;
    anywhere else, anybody may send it."""
    here = os.environ.get("GAE_ENV", "").startswith("standard")
    return here and request.headers.get("x-appengine-cron") == "true"
