"""The code of docs/dashboard.md for sites, asked for pages by the frameworks' own clients, with the sites' logins."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.test_coming_from import code

if TYPE_CHECKING:
    from tests.site import Site

MAILS, *_ = code("producers.md", "python", "In a web site")
FLASK, FASTAPI, *_ = code("dashboard.md", "python")
SITES = {
    "flask": (
        FLASK,
        """
@site.get("/login/<name>")
def login(name):
    session["user"] = name
    return ""
""",
        "client = site.test_client()",
        "answer.get_data(as_text=True)",
    ),
    "fastapi": (
        FASTAPI,
        """
from fastapi import Request

@site.get("/login/{name}")
def login(name: str, request: Request):
    request.session["user"] = name
""",
        "from fastapi.testclient import TestClient; client = TestClient(site)",
        "answer.text",
    ),
}
ASKED = """
import json, os, sys
sys.path.insert(0, os.getcwd())
from web import site
{client}
found = []
for path in {paths}:
    answer = client.get(path)
    found.append([answer.status_code, {text}])
print(json.dumps(found))
"""


def pages(site: Site, framework: str, *paths: str) -> Any:
    program, login, client, text = SITES[framework]
    (site.directory / "mails.py").write_text(MAILS)
    (site.directory / "web.py").write_text(program + login)
    (site.directory / "config.toml").write_text('handlers = ["mails"]\n')
    script = ASKED.format(client=client, paths=paths, text=text)
    process = site.start_program([sys.executable, "-c", script])
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.mark.parametrize("framework", SITES)
def test_the_login_of_a_site_says_who_sees_the_dashboard_and_who_has_buttons(site: Site, framework: str) -> None:
    site.command("store", "start")
    site.command("enqueue", "mail.send", '{"to": "a"}', "--id", "a", "--queue", "default")
    message = "/queue/message?queue=default&id=a"
    asked = ("/queue/", "/login/bob", "/queue/", message, "/login/ada", message)
    (refused, _), _, (code, _), (_, looked), _, (_, acted) = pages(site, framework, *asked)
    assert (refused, code) == (403, 200)
    assert 'action="act"' not in looked
    assert '<form method="post" action="act">' in acted
