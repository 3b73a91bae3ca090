"""Launches and other commands that import handlers, where DJANGO_SETTINGS_MODULE names a site."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.django.conftest import DECORATOR
from tests.site import wait_until
from tests.system.test_coming_from import code

if TYPE_CHECKING:
    from pathlib import Path

    from tests.django.conftest import DjangoSite
    from tests.site import Site

HOSTILE = (
    "os.system",
    "shop.tasks.note",  # of a module of tasks, and no task
    "shop.tasks.os.system",
    "shop.views.trap",
    "trap.spring",  # of a module that nothing else imports
)


def test_a_message_calls_nothing_but_the_tasks_of_installed_apps_and_imports_nothing(django_site: DjangoSite) -> None:
    django_site.write("trap.py", "import pathlib; pathlib.Path('sprung').touch()\ndef spring(*_): ...\n")
    django_site.write("shop/views.py", "import trap\n")
    sent = [django_site.enqueue(name, "--queue", "default", args=["touch sprung"]) for name in HOSTILE]
    done = django_site.drain()
    assert done.returncode == 0
    assert [django_site.state(message) for message in sent] == ["scheduled"] * len(HOSTILE)
    assert {django_site.json("status", message)["attempts"] for message in sent} == {0}
    django_site.program(f"""
        backend = record.get_backend()
        for message in {sent!r}:
            try:
                backend.get_result(message)
            except Exception as error:
                assert type(error).__name__ == "TaskResultDoesNotExist", error
            else:
                raise AssertionError(message)
    """)
    assert not (django_site.directory / "sprung").exists()
    assert django_site.notes() == []


def test_the_class_of_a_stored_error_is_not_imported(django_site: DjangoSite) -> None:
    """A traceback in the store is written by whoever may write there."""
    django_site.write("trap.py", "import pathlib; pathlib.Path('sprung').touch()\nclass Spring(Exception): ...\n")
    django_site.append(
        "shop/tasks.py",
        """
        class Spring(Exception):
            __module__ = "trap"

        @task(max_attempts=1)
        def ensnare():
            raise Spring
        """,
    )
    sent = django_site.program("print(json.dumps(ensnare.enqueue().id))")
    django_site.drain()
    said = django_site.program(f"""
        [error] = record.get_backend().get_result({sent!r}).errors
        try:
            error.exception_class
        except ValueError as refusal:
            print(json.dumps([error.exception_class_path, str(refusal)]))
    """)
    assert said == ["trap.Spring", "'trap.Spring' is no exception of a module that is imported here"]
    assert not (django_site.directory / "sprung").exists()


def test_plain_handlers_of_a_site_may_use_its_models_and_need_no_framework(django_site: DjangoSite) -> None:
    django_site.write("config.toml", 'handlers = ["plain"]\n')
    django_site.write("website.py", (django_site.directory / "website.py").read_text().partition("TASKS")[0])
    django_site.write(
        "plain.py",
        """
        from pathlib import Path
        from django.contrib.contenttypes.models import ContentType
        from pollconsumer import PollConsumer

        app = PollConsumer()

        @app.handler
        def count() -> None:
            Path("notes").write_text(ContentType._meta.label)
        """,
    )
    django_site.append("website.py", 'INSTALLED_APPS += ["django.contrib.contenttypes"]\n')
    django_site.enqueue("count")
    assert django_site.drain().stderr == ""
    assert django_site.notes() == ["contenttypes.ContentType"]


def test_handlers_that_configure_django_themselves_leave_no_transaction_open_for_the_next(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from pathlib import Path\n"
        "from django.conf import settings\n"
        "settings.configure(DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': 'db.sqlite3'}})\n"
        "from django.db import connection, transaction\n"
        "from pollconsumer import PollConsumer\n"
        "app = PollConsumer()\n"
        "@app.handler\n"
        "def enters():\n"
        "    transaction.atomic().__enter__()\n"
        "@app.handler\n"
        "def looks():\n"
        "    Path('seen').write_text(str(connection.in_atomic_block))\n"
    )
    for name in ("enters", "looks"):
        site.enqueue(name)
    done = site.drain()
    assert (site.directory / "seen").read_text() == "False"
    assert "enters left a transaction of database default open: rolled back" in done.stderr


def test_connections_are_closed_between_messages_as_django_does_between_requests(django_site: DjangoSite) -> None:
    django_site.append(
        "shop/tasks.py",
        """
        from asgiref.sync import sync_to_async
        from django.db import connection

        def query():
            was = "closed" if connection.connection is None else "open"
            connection.cursor().execute("SELECT 1")
            return was

        @task
        def look(name):
            note(f"{name} {query()}")
            if name == "raising":
                raise ValueError(name)

        @task(queue_name="mail")
        async def look_async(name):
            note(f"{name} {await sync_to_async(query)()}")
        """,
    )
    program = """
        for name in ("one", "raising", "two"):
            look.using(priority=9).enqueue(name)
        look_async.enqueue("async one")
        look_async.enqueue("async two")
    """
    closed = {f"{name} closed" for name in ("one", "raising", "two", "async one", "async two")}
    django_site.program(program)
    django_site.drain()
    assert {*django_site.notes()} == closed
    django_site.append("website.py", 'DATABASES["default"]["CONN_MAX_AGE"] = 600\n')
    (django_site.directory / "notes").unlink()
    django_site.program(program)
    django_site.drain()
    assert {"two open", "async two open"} <= {*django_site.notes()}


def test_a_transaction_that_a_task_leaves_open_is_not_the_next_one_s(django_site: DjangoSite) -> None:
    django_site.append(
        "shop/tasks.py",
        """
        from asgiref.sync import sync_to_async
        from django.db import connection, transaction

        def enter(closes):
            connection.cursor().execute("CREATE TABLE IF NOT EXISTS kept (name text)")
            transaction.atomic().__enter__()
            connection.cursor().execute("INSERT INTO kept VALUES ('lost')")
            if closes:
                connection.close()

        def query():
            connection.cursor().execute("SELECT * FROM kept")
            return f"{connection.in_atomic_block} {connection.closed_in_transaction}"

        @task
        def enters(closes):
            enter(closes)

        @task
        def looks():
            note(query())

        @task
        async def enters_async(closes):
            await sync_to_async(enter)(closes)

        @task
        async def looks_async():
            note(await sync_to_async(query)())
        """,
    )
    django_site.append("website.py", 'DATABASES["default"]["CONN_MAX_AGE"] = 600\n')
    django_site.program(
        """
        for closes in (False, True):
            enters.enqueue(closes), looks.enqueue(), enters_async.enqueue(closes), looks_async.enqueue()
        """
    )
    done = django_site.drain()
    assert django_site.notes() == ["False False"] * 4
    said = "left a transaction of database default open: rolled back, its connection dropped"
    lines = [f"pollconsumer: warning: shop.tasks.{name} {said}" for name in ("enters", "enters_async")]
    assert sorted({*done.stderr.splitlines()}) == lines


@pytest.mark.parametrize("concurrency", [1, 2])
def test_language_and_time_zone_are_a_task_s_own_while_caches_stay_connected(
    django_site: DjangoSite, concurrency: int
) -> None:
    django_site.append(
        "shop/tasks.py",
        """
        import threading
        from django.core.cache import cache, caches
        from django.utils import timezone, translation

        def seen():
            before = f"{translation.get_language()} {timezone.get_current_timezone_name()}"
            translation.activate("de")
            timezone.activate("Asia/Tokyo")
            return before

        @task
        def looks():
            cache.get("x")
            first.cache = getattr(first, "cache", caches["default"])
            note(f"{seen()} {first.cache is caches['default']}")

        @task
        async def looks_async():
            note(f"{seen()} True")

        first = threading.local()
        """,
    )
    django_site.program("for _ in range(4): looks.enqueue(), looks_async.enqueue()")
    done = django_site.drain("--concurrency", str(concurrency))
    assert (done.returncode, done.stderr) == (0, "")
    assert django_site.notes() == ["en-us America/Chicago True"] * 8


def test_the_command_line_and_recurrences_send_tasks_to_their_own_queue(django_site: DjangoSite) -> None:
    sent = django_site.enqueue("shop.tasks.fetch", kwargs={"name": "a"})
    assert django_site.json("status", sent)["queue"] == "mail"
    django_site.write("config.toml", RECURRENCE)
    launch = django_site.start("run", "--timeout", "60s", "--max-messages", "2")
    wait_until(lambda: len(django_site.notes()) == 2, "the occurrence")
    _, errors = launch.communicate()
    assert (launch.returncode, errors) == (0, "")
    assert {*django_site.notes()} == {"fetch a", "fetch nightly"}


RECURRENCE = """
[recurrences.nightly]
handler = "shop.tasks.fetch"
every = "1s"
payload = { args = ["nightly"] }
"""


def test_a_site_that_sends_elsewhere_than_its_launches_look_is_warned(django_site: DjangoSite) -> None:
    django_site.append("website.py", 'TASKS["default"]["OPTIONS"]["namespace"] = "another"\n')
    done = django_site.drain()
    assert done.returncode == 0
    assert "warning: TASKS: the site sends tasks to another store or namespace than this launch's" in done.stderr
    assert django_site.drain("--help").stderr == ""
    assert django_site.command("--namespace", "another", "run", "--until-empty").stderr == ""


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("website.py", None, "DJANGO_SETTINGS_MODULE: website; No module named 'website'; is it in the"),
        (
            "website.py",
            "raise ValueError('two\\nlines')",
            "DJANGO_SETTINGS_MODULE: website; importing it raised ValueErr",
        ),
        ("website.py", "INSTALLED_APPS = ['nowhere']", "DJANGO_SETTINGS_MODULE: website; No module named 'nowhere'"),
        ("shop/tasks.py", "import nowhere", "INSTALLED_APPS: shop.tasks; No module named 'nowhere'"),
        (
            "shop/tasks.py",
            "import sys; sys.exit(3)",
            "INSTALLED_APPS: shop.tasks; the module exits when it is imported",
        ),
        ("shop/__init__.py", "raise LookupError('gone')", "website; importing it raised LookupError: gone"),
    ],
)
def test_a_site_that_cannot_be_imported_is_named_in_one_line(
    django_site: DjangoSite, command: str, file: str, content: str | None, said: str
) -> None:
    if content is None:
        (django_site.directory / file).unlink()
    else:
        django_site.write(file, content)
    done = django_site.command(command)
    *traced, line = done.stderr.splitlines()
    assert done.returncode == 78
    assert said in line
    assert command == "check" or not traced


def test_a_missing_django_is_named_with_what_to_install_and_imported_only_when_it_is_wanted(site: Site) -> None:
    """A launch of a user without Django, as without the variable."""
    missing = "import sys; sys.modules['django'] = None; sys.argv[1:] = ['run', '--until-empty']"
    script = f"{missing}\nfrom pollconsumer.__main__ import main\nmain()"
    process = site.start_program([sys.executable, "-c", script])
    assert process.communicate() == ("", "")
    assert process.returncode == 0
    process = site.start_program([sys.executable, "-c", script], DJANGO_SETTINGS_MODULE="website")
    fix = "Django is not installed here: pip install 'pollconsumer[django]', or unset the variable"
    assert process.communicate() == ("", f"pollconsumer: error: DJANGO_SETTINGS_MODULE: website; {fix}\n")
    assert process.returncode == 78
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['django'] = None; import pollconsumer.django"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr.endswith("ImportError: Django is not installed here: pip install 'pollconsumer[django]'\n")


def test_a_plain_launch_imports_nothing_of_django(site: Site) -> None:
    script = (
        "import atexit, sys; sys.argv[1:] = ['run', '--until-empty']\n"
        "atexit.register(lambda: print([name for name in sys.modules if 'django' in name or 'asgiref' in name]))\n"
        "from pollconsumer.__main__ import main\nmain()"
    )
    process = site.start_program([sys.executable, "-c", script])
    assert process.communicate() == ("[]\n", "")


@pytest.mark.parametrize(
    "logging",
    [
        "{'version': 1}",  # disables every logger that it does not name
        pytest.param(
            "{'version': 1, 'handlers': {'site': {'class': 'logging.StreamHandler'}}, 'root': {'handlers': ['site']}}",
            marks=pytest.mark.ends_with(traceback=True),  # of the task, by the framework's logger to the site's handler
        ),
    ],
)
def test_a_site_that_configures_logging_changes_none_of_our_lines(django_site: DjangoSite, logging: str) -> None:
    django_site.append("website.py", f"LOGGING = {logging}\n")
    sent = django_site.program("print(json.dumps(fail_once.enqueue('a').id))")
    done = django_site.command_from_the_start("run", "--until-empty")  # what it disables are loggers that there are
    ours = [line for line in done.stderr.splitlines() if line.startswith("pollconsumer: ")]
    assert ours == [
        f"pollconsumer: warning: dead letter: {sent} (shop.tasks.fail_once), attempt 1: ValueError: a "
        "(shop/tasks.py:37)",
    ]
    assert done.stderr.count("state=FAILED") == ("root" in logging)


def test_the_time_zone_of_a_site_does_not_move_the_next_launches(django_site: DjangoSite) -> None:
    """Setup sets the process's zone; cron knows nothing of it."""
    django_site.append("website.py", 'TIME_ZONE = "Asia/Tokyo"\n')
    django_site.write("config.toml", '[consumer]\nschedule = "0 12 * * *"\n')
    report = json.loads(django_site.command("check", "--json", TZ="UTC").stdout)
    assert {launch[10:] for launch in report["consumer"]["next_launches"]} == {"T12:00:00.000Z"}


def test_a_module_of_a_site_that_others_may_write_is_refused(django_site: DjangoSite) -> None:
    for path in ("website.py", "shop/tasks.py"):
        file: Path = django_site.directory / path
        file.chmod(0o666)
        done = django_site.command("run", "--until-empty")
        assert done.returncode == 78
        assert f"handlers' module is writable by others: {file}" in done.stderr
        file.chmod(0o644)


def test_a_sandbox_runs_the_tasks_of_a_site_in_memory(django_site: DjangoSite) -> None:
    assert django_site.program("""
        import logging
        from pollconsumer.testing import Sandbox
        logging.disable()
        with Sandbox() as sandbox:
            sent = record.enqueue("a")
            failing = fail.using(queue_name="mail").enqueue("b")
            sandbox.run()
            sandbox.advance("1h")
            sandbox.run()
            sent.refresh()
            failing.refresh()
            print(json.dumps([sent.status, sent.return_value, failing.status, failing.attempts]))
    """) == ["SUCCESSFUL", {"noted": "a"}, "FAILED", 2]
    assert django_site.json("status")["queues"] == []


def test_a_sandbox_leaves_the_transaction_open_in_which_a_test_of_django_runs(django_site: DjangoSite) -> None:
    assert django_site.program("""
        import logging
        from django.db import connection, transaction
        from pollconsumer.testing import Sandbox
        logging.disable()
        def count():
            with connection.cursor() as cursor:
                return cursor.execute("SELECT count(*) FROM rows").fetchone()[0]
        with transaction.atomic():
            connection.cursor().execute("CREATE TABLE rows (one INT)")
            with Sandbox() as sandbox:
                connection.cursor().execute("INSERT INTO rows VALUES (1)")
                record.enqueue("a")
                fail_once.enqueue("b")
                launched = sandbox.run()
            print(json.dumps([launched.handled, launched.failed, count()]))
            transaction.set_rollback(True)
    """) == [1, 1, 1]


def test_a_message_that_is_no_task_s_call_is_a_dead_letter_at_once(django_site: DjangoSite) -> None:
    sent = [
        django_site.enqueue("shop.tasks.record", "--queue", "default", name="a"),
        django_site.enqueue("shop.tasks.record", "--queue", "default", args="a"),
        django_site.enqueue("shop.tasks.record", "--queue", "default", args=["a"], context={"attempt": 9}),
    ]
    assert django_site.drain().returncode == 0
    assert [django_site.state(message) for message in sent] == ["dead"] * 3
    assert "bad_arguments: unexpected name" in django_site.json("status", sent[0])["last_error"]
    assert "args is str, not list or None" in django_site.json("status", sent[1])["last_error"]
    found = django_site.result(sent[0])
    assert (found["status"], found["errors"][0][:2]) == ("FAILED", ["pollconsumer.core.retry.Fatal", "Fatal"])


def test_a_task_in_a_table_is_enqueued_if_its_order_is_committed(django_site: DjangoSite) -> None:
    models, tasks = code("producers.md", "python", "In your database's transaction")[-2:]
    (settings,) = code("producers.md", "toml", "In your database's transaction")
    django_site.write("shop/models.py", models)
    django_site.write("shop/tasks.py", re.sub("from django_tasks import task.*", lambda _: DECORATOR, tasks))
    django_site.write("config.toml", settings)
    django_site.program("""
        from django.core.management import call_command
        call_command("migrate", run_syncdb=True, verbosity=0)
        for order in ("undone", "done"):
            with transaction.atomic():
                Outgoing.objects.create(task="shop.tasks.charge", kwargs={"order": order})
                transaction.set_rollback(order == "undone")
        send_outgoing.enqueue()
    """)
    done = django_site.drain("--linger", "1s")
    assert (done.returncode, done.stdout) == (0, "charged done\n")
    assert django_site.program("print(Outgoing.objects.count())") == 0
