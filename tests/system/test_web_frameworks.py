"""The web sites of docs/producers.md, asked for pages by the frameworks' own clients, with launches in between."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.system.test_coming_from import code

if TYPE_CHECKING:
    from tests.site import Site

MAILS, FLASK, FASTAPI = code("producers.md", "python", "In a web site")
ANSWERS = "import json; print(json.dumps([[answer.status_code, {}] for answer in answers]))"
CLIENTS = {
    "flask": (FLASK, "from web import app; client = app.test_client()", ANSWERS.format("answer.json")),
    "fastapi": (
        FASTAPI,
        "from web import app; from fastapi.testclient import TestClient; client = TestClient(app)",
        ANSWERS.format("answer.json()"),
    ),
}
POST = {"flask": "client.post('/mails', data={'to': 'ada'})", "fastapi": "client.post('/mails?to=ada')"}


class Web:
    """A site of the framework, of which each visit is a process, as of a server that has just started."""

    def __init__(self, site: Site, framework: str) -> None:
        self.site, self.framework = site, framework
        program, self._begin, self._end = CLIENTS[framework]
        (site.directory / "mails.py").write_text(MAILS)
        (site.directory / "web.py").write_text(program)
        (site.directory / "config.toml").write_text('handlers = ["mails"]\n')

    def answers(self, *requests: str, **environment: str) -> Any:
        """Status and body of each, asked for from another directory."""
        code = f"{self._begin}\nanswers = [{', '.join(requests)}]\n{self._end}"
        script = f"import os, sys; sys.path.insert(0, os.getcwd()); os.chdir('/')\n{code}"
        process = self.site.start_program([sys.executable, "-c", script], **environment)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        return json.loads(output)


@pytest.fixture(params=[*CLIENTS])
def web(request: pytest.FixtureRequest, site: Site) -> Web:
    return Web(site, request.param)


def test_a_page_enqueues_a_launch_handles_and_another_page_shows_the_state(web: Web) -> None:
    web.site.command("store", "start")  # a page that starts it may need more than its patience of a second
    [[code, sent]] = web.answers(POST[web.framework])
    assert code == 202
    page = f"client.get('/mails/{sent['id']}')"
    assert web.answers(page) == [[200, {"state": "ready", "result": None, "error": None}]]
    done = web.site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    found, missing = web.answers(page, "client.get('/mails/nowhere')")
    assert found == [200, {"state": "completed", "result": "sent to ada", "error": None}]
    assert missing == [404, {"error": "no such message"}]


def test_a_store_that_is_away_is_said_so(web: Web) -> None:
    away = web.answers(POST[web.framework], POLLCONSUMER_STORE=f"unix://{web.site.directory}/nowhere.sock")
    assert away == [[503, {"error": "try again later"}]]
