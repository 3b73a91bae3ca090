"""A Django site on disk, with an embedded server of its own: its programs and its launches are processes."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import django
import pytest

from tests.forks import DJANGO_FORKS
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAMEWORK = "django.tasks" if django.VERSION >= (6,) else "django_tasks"
DECORATOR = f"from {FRAMEWORK} import task"
if django.VERSION[:2] == (6, 0):  # its decorator takes no options
    DECORATOR = """
from django.tasks import task_backends


def task(function=None, **options):
    def made(function):
        usual = dict(priority=0, queue_name="default", backend="default", takes_context=False, run_after=None)
        return task_backends["default"].task_class(func=function, **usual | options)
    return made(function) if function else made
"""
SETTINGS = f"""
from pathlib import Path
BASE_DIR = Path(__file__).parent
SECRET_KEY = "tests"
USE_TZ = True
INSTALLED_APPS = ["shop"{"" if django.VERSION >= (6,) else ", 'django_tasks'"}]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": BASE_DIR / "db.sqlite3"}}}}
TASKS = {{"default": {{
    "BACKEND": "pollconsumer.django.PollConsumerBackend",
    "QUEUES": ["default", "mail"],
    "OPTIONS": {{"config": BASE_DIR / "config.toml", "max_attempts": 2, "retry": Soon()}},
}}}}
"""
SOON = """
class Soon:
    def delay(self, attempt, chance):
        return 0.01
"""
NOTING = f"""
import os
from pathlib import Path

{DECORATOR}


def note(what):
    with (Path(__file__).parents[1] / "notes").open("a") as notes:
        notes.write(f"{{what}}\\n")
"""
TASKS = """
@task
def record(name, *, times=1):
    for _ in range(times):
        note(name)
    return {"noted": name}


@task(takes_context=True)
def tell(context, name):
    note(f"{name} attempt {context.attempt} {context.message.attempt} {context.task_result.args}")


class Unwilling(Exception):
    pass


@task
def fail(name):
    note(f"try {name}")
    raise Unwilling(f"{name} cannot be done")


@task(max_attempts=1, queue_name="mail")
def fail_once(name):
    note(f"try {name}")
    raise ValueError(name)


@task(queue_name="mail")
async def fetch(name):
    note(f"fetch {name}")
    return name.upper()
"""


class DjangoSite(Site):
    forks = DJANGO_FORKS
    looking = frozenset()
    """Nothing: the settings of the site's framework are a process's for good."""

    def __init__(self) -> None:
        super().__init__()
        self.environment["DJANGO_SETTINGS_MODULE"] = "website"
        (self.directory / "config.toml").write_text("")
        self.write("website.py", SOON + SETTINGS)
        self.write("shop/__init__.py", "")
        self.write("shop/tasks.py", NOTING + TASKS)

    def write(self, path: str, text: str) -> None:
        file = self.directory / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text))

    def append(self, path: str, text: str) -> None:
        with (self.directory / path).open("a") as file:
            file.write(dedent(text))

    def program(self, text: str, **environment: str) -> Any:
        """What ``text`` prints as JSON, a program of the site, such as a view."""
        return self.plain_program(f"from shop.tasks import *\n{dedent(text)}", **environment)

    def plain_program(self, text: str, **environment: str) -> Any:
        """One that imports no task."""
        script = f"import django; django.setup()\nimport json\n{dedent(text)}"
        done = self._completed(self._fork("-c", script, environment=self.environment | environment))
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout) if done.stdout else None

    def result(self, message_id: str) -> Any:
        """The result of a task, as another process of the site finds it."""
        return self.program(
            f"""
            from {FRAMEWORK} import task_backends
            found = task_backends["default"].get_result({message_id!r})
            print(json.dumps({{
                "status": found.status, "path": found.task.module_path, "priority": found.task.priority,
                "queue": found.task.queue_name, "args": found.args, "kwargs": found.kwargs, "attempts": found.attempts,
                "enqueued": str(found.enqueued_at), "started": str(found.started_at),
                "finished": str(found.finished_at),
                "last": str(found.last_attempted_at), "run_after": str(found.task.run_after),
                "value": found.return_value if found.status == "SUCCESSFUL" else None,
                "errors": [[error.exception_class_path, error.exception_class.__name__, error.traceback]
                           for error in found.errors],
            }}))
            """
        )


@pytest.fixture
def django_site() -> Iterator[DjangoSite]:
    site = DjangoSite()
    yield site
    site.close()
