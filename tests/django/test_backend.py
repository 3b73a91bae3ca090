"""The backend of Django's tasks framework: what a site sends, what a launch handles, what results say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.django.conftest import FRAMEWORK

if TYPE_CHECKING:
    from tests.django.conftest import DjangoSite


def test_a_task_that_a_site_sends_is_handled_by_a_launch_and_its_result_is_found(django_site: DjangoSite) -> None:
    sent = django_site.program("r = record.enqueue('a', times=2); print(json.dumps([r.id, r.status, r.attempts]))")
    assert sent[1:] == ["READY", 0]
    before = django_site.result(sent[0])
    assert (before["status"], before["started"], before["args"]) == ("READY", "None", ["a"])
    done = django_site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert django_site.notes() == ["a", "a"]
    found = django_site.result(sent[0])
    assert found["path"] == "shop.tasks.record"
    assert (found["status"], found["value"], found["attempts"]) == ("SUCCESSFUL", {"noted": "a"}, 1)
    assert (found["args"], found["kwargs"], found["errors"]) == (["a"], {"times": 2}, [])
    assert found["enqueued"] < found["started"] <= found["finished"]
    assert found["last"] == found["started"]


def test_a_task_that_raises_is_tried_again_then_failed_with_its_class_and_traceback(django_site: DjangoSite) -> None:
    sent = django_site.program("print(json.dumps(fail.enqueue('a').id))")
    done = django_site.drain("--linger", "1s")
    assert done.returncode == 0
    assert done.stderr.startswith(f"pollconsumer: warning: dead letter: {sent} (shop.tasks.fail), attempt 2: Unwilling")
    assert done.stderr.count("\n") == 1
    assert django_site.notes() == ["try a", "try a"]
    found = django_site.result(sent)
    assert (found["status"], found["attempts"], found["args"]) == ("FAILED", 2, ["a"])
    [[path, name, trace]] = found["errors"]
    assert (path, name) == ("shop.tasks.Unwilling", "Unwilling")
    assert trace.startswith("Traceback")
    assert trace.endswith("shop.tasks.Unwilling: a cannot be done\n")
    assert "pollconsumer/django" not in trace


def test_a_task_sets_options_of_its_handler_and_its_own_queue_is_served(django_site: DjangoSite) -> None:
    sent = django_site.program("print(json.dumps(fail_once.enqueue('a').id))")
    django_site.drain("--linger", "1s")
    found = django_site.result(sent)
    assert (found["status"], found["attempts"], found["queue"]) == ("FAILED", 1, "mail")
    assert found["errors"][0][:2] == ["builtins.ValueError", "ValueError"]


def test_every_queue_of_the_backend_is_served(django_site: DjangoSite) -> None:
    django_site.write("website.py", (django_site.directory / "website.py").read_text() + SECOND_QUEUE)
    django_site.program("record.using(queue_name='rarely').enqueue('a')")
    django_site.drain()
    assert django_site.notes() == ["a"]
    assert django_site.json("launches")[0]["queues"] == ["default", "mail", "rarely"]


SECOND_QUEUE = 'TASKS["default"]["QUEUES"].append("rarely")\n'


def test_a_larger_priority_is_sooner_and_a_task_does_not_run_before_its_time(django_site: DjangoSite) -> None:
    sent = django_site.program("""
        from datetime import datetime, timedelta, timezone
        record.enqueue("usual")
        record.using(priority=-100).enqueue("last")
        first = record.using(priority=100).enqueue("first")
        later = record.using(run_after=datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))).enqueue("later")
        print(json.dumps([first.id, later.id]))
    """)
    django_site.drain()
    assert django_site.notes() == ["first", "usual", "last"]
    first, later = map(django_site.result, sent)
    assert (first["priority"], first["run_after"]) == (100, "None")
    assert (later["status"], later["run_after"]) == ("READY", "2100-01-01 10:00:00+00:00")
    assert django_site.state(sent[1]) == "scheduled"


def test_async_tasks_and_the_async_variants_of_calls(django_site: DjangoSite) -> None:
    sent = django_site.program("""
        import asyncio
        async def send():
            sent = await fetch.aenqueue("a")
            again = await fetch.aget_result(sent.id)
            await sent.arefresh()
            try:
                await fetch.aget_result("nowhere")
            except Exception as error:
                return [sent.id, again.status, type(error).__name__]
        print(json.dumps(asyncio.run(send())))
    """)
    assert sent[1:] == ["READY", "TaskResultDoesNotExist"]
    done = django_site.drain()
    assert (done.returncode, done.stderr, django_site.notes()) == (0, "", ["fetch a"])
    assert django_site.result(sent[0])["value"] == "A"


def test_a_task_that_takes_its_context_learns_its_attempt_and_has_ours(django_site: DjangoSite) -> None:
    django_site.append(
        "shop/tasks.py",
        """
        @task(takes_context=True, queue_name="mail", delivery="at_least_once", timeout="1m")
        def twice(context, name):
            note(f"{name} {context.attempt} {context.message.time_left() > 0} {context.task_result.status}")
            if context.attempt == 1:
                raise ValueError(name)
            context.message.enqueue("shop.tasks.record", {"args": ["followed"]})
        """,
    )
    django_site.program("twice.enqueue('a')")
    assert django_site.drain("--linger", "1s").stderr == ""
    assert django_site.notes() == ["a 1 True RUNNING", "a 2 True RUNNING", "followed"]


def test_an_isolated_task_runs_in_a_process_of_its_own_that_has_the_site(django_site: DjangoSite) -> None:
    django_site.append(
        "shop/tasks.py",
        """
        @task(isolation="process", takes_context=True)
        def apart(context, launch):
            from django.conf import settings
            note(f"{settings.SECRET_KEY} {os.getppid() != launch} {context.attempt}")
        """,
    )
    django_site.program("import os; apart.enqueue(os.getpid())")
    assert django_site.drain().stderr == ""
    assert django_site.notes() == ["tests True 1"]


def test_results_that_are_not_there_and_results_of_other_tasks(django_site: DjangoSite) -> None:
    of_no_task = django_site.enqueue("shop.tasks.note", "--queue", "default", args=[])
    said = django_site.program(f"""
        def raised(get, *given):
            try:
                get(*given)
            except Exception as error:
                return type(error).__name__
        sent = record.enqueue("a")
        backend = record.get_backend()
        print(json.dumps([
            raised(backend.get_result, "nowhere"), raised(backend.get_result, "no id \\n" * 100),
            raised(backend.get_result, 5), raised(backend.get_result, None), raised(backend.get_result, b"a"),
            raised(backend.get_result, {of_no_task!r}), raised(fail.get_result, sent.id),
            record.get_result(sent.id).task == record,
        ]))
    """)
    assert said == ["TaskResultDoesNotExist"] * 6 + ["TaskResultMismatch", True]


def test_of_a_completed_message_large_arguments_are_no_longer_known(django_site: DjangoSite) -> None:
    small, large = django_site.program("print(json.dumps([record.enqueue('a' * n).id for n in (100, 2000)]))")
    django_site.drain()
    assert django_site.result(small)["args"] == ["a" * 100]
    assert (django_site.result(large)["args"], django_site.result(large)["status"]) == ([], "SUCCESSFUL")


def test_what_cannot_be_sent_is_refused_before_anything_is_sent(django_site: DjangoSite) -> None:
    said = django_site.program("""
        from shop.tasks import task
        def raised(send, *given):
            try:
                send(*given)
            except Exception as error:
                return f"{type(error).__name__}: {error}"
        @task
        def elsewhere():
            pass
        def declare(**options):
            task(**options)(note)
        print(json.dumps([
            raised(elsewhere.enqueue), raised(record.enqueue, object()), raised(record.enqueue, "x" * 2**20),
            raised(lambda: record.using(queue_name="nowhere")), raised(lambda: declare(max_attempts=0)),
            raised(lambda: declare(isolation="thread")), raised(lambda: declare(tries=3)),
        ]))
    """)
    kinds = [each.partition(":")[0].replace("InvalidTaskError", "InvalidTask") for each in said]
    invalid = "InvalidTask"
    assert kinds == [invalid, "TypeError", "PayloadTooLarge", invalid, invalid, invalid, "TypeError"]
    assert said[0].endswith("define or import it in the module 'tasks' of an installed app, where a launch finds it.")
    assert django_site.command("list").stdout.count("\n") <= 1


RECEIVERS = f"""
from {FRAMEWORK}.signals import task_enqueued, task_finished, task_started

def tell(signal):
    def receive(sender, task_result, **_):
        error = sys.exc_info()[1]
        note(f"{{signal}} {{sender.__name__}} {{task_result.status}} {{task_result.args}} {{error!r}}")
        raise RuntimeError("of a receiver")
    return receive

import sys
RECEIVERS = [tell("enqueued"), tell("started"), tell("finished")]
for signal, receiver in zip((task_enqueued, task_started, task_finished), RECEIVERS):
    signal.connect(receiver)
"""


def test_signals_tell_of_a_task_that_is_enqueued_started_and_finished_for_good(django_site: DjangoSite) -> None:
    django_site.append("shop/tasks.py", RECEIVERS)
    django_site.program("""
        import logging
        logging.getLogger("django.dispatch").disabled = True
        record.enqueue("a")
        fetch.enqueue("b")
        fail.enqueue("c")
    """)
    done = django_site.drain("--linger", "1s")
    assert done.returncode == 0
    notes = [note.replace("PollConsumerBackend ", "") for note in django_site.notes()]
    assert sorted(note for note in notes if note.startswith("enqueued")) == [
        f"enqueued READY ['{name}'] None" for name in "abc"
    ]
    assert [note for note in notes if "['a']" in note] == [
        "enqueued READY ['a'] None",
        "started RUNNING ['a'] None",
        "finished SUCCESSFUL ['a'] None",
    ]
    assert [note for note in notes if "['b']" in note][-1] == "finished SUCCESSFUL ['b'] None"
    assert [note for note in notes if "['c']" in note][1:] == [
        "started RUNNING ['c'] None",
        "started RUNNING ['c'] None",
        "finished FAILED ['c'] Unwilling('c cannot be done')",
    ]
    assert {"a", "fetch b"} <= {*notes}


def test_on_commit_a_message_is_sent_when_the_transaction_commits_and_never_if_it_does_not(
    django_site: DjangoSite,
) -> None:
    django_site.append("website.py", 'TASKS["default"]["ENQUEUE_ON_COMMIT"] = True\n')
    said = django_site.program("""
        from asgiref.sync import async_to_sync
        from django.db import transaction
        def is_there(result):
            try:
                result.refresh()
            except Exception:
                return False
            return True
        with transaction.atomic():
            kept = record.enqueue("kept")
            during = is_there(kept)
        try:
            with transaction.atomic():
                dropped = record.enqueue("dropped")
                raise LookupError
        except LookupError:
            pass
        once = [record.enqueue("at once"), async_to_sync(record.aenqueue)("at once")]
        print(json.dumps([during, is_there(kept), is_there(dropped), *map(is_there, once)]))
    """)
    assert said == [False, True, False, True, True]


def test_the_threads_of_a_site_share_one_connection(django_site: DjangoSite) -> None:
    """The framework makes a backend for each thread, of which a web server may start one for each request."""
    assert django_site.program("""
        import gc, threading
        from pollconsumer import PollConsumer
        record.enqueue("a")
        def count():
            return sum(type(each) is PollConsumer for each in gc.get_objects())
        before = count()
        for _ in range(3):
            thread = threading.Thread(target=record.enqueue, args=("b",))
            thread.start()
            thread.join()
        print(json.dumps([before, count()]))
    """) == [1, 1]


def test_the_backend_says_what_it_supports(django_site: DjangoSite) -> None:
    names = ["supports_defer", "supports_async_task", "supports_get_result", "supports_priority"]
    program = f"print(json.dumps([getattr(record.get_backend(), name) for name in {names}]))"
    assert django_site.program(program) == [True] * 4


def test_system_checks_name_what_is_wrong_in_tasks_and_how_to_mend_it(django_site: DjangoSite) -> None:
    program = f"""
        import {FRAMEWORK}  # which registers the check, in Django 6
        from django.core.checks import run_checks
        print(json.dumps([[each.id, each.msg, each.hint] for each in run_checks()]))
    """
    assert django_site.program(program) == []
    django_site.write("config.toml", '[consumer]\nqueues = ["default"]\n')
    django_site.append(
        "website.py",
        """
        TASKS["default"]["OPTIONS"] |= {"stor": "embedded", "max_attempts": 0}
        TASKS["default"]["QUEUES"].append("a b")
        TASKS["other"] = {
            "BACKEND": "pollconsumer.django.PollConsumerBackend", "OPTIONS": {"config": BASE_DIR / "nowhere.toml"}
        }
        """,
    )
    django_site.write("shop/tasks.py", "import nowhere\n")
    found = django_site.plain_program(program)
    assert {each[0] for each in found} == {
        f"pollconsumer.{number}" for number in ("E001", "E002", "E003", "E004", "E005", "W001")
    }
    texts = {each[0]: f"{each[1]} {each[2]}" for each in found}
    assert "TASKS['default']: OPTIONS: unknown option stor. Did you mean store?" in texts["pollconsumer.E001"]
    assert "queue name: 'a b'" in texts["pollconsumer.E002"]
    assert "max_attempts: 0" in texts["pollconsumer.E003"]
    assert "nowhere.toml" in texts["pollconsumer.E004"]
    assert "No module named 'nowhere'" in texts["pollconsumer.E005"]
    assert "mail is not among consumer.queues" in texts["pollconsumer.W001"]
    assert f"Add it to consumer.queues in {django_site.directory}/config.toml" in texts["pollconsumer.W001"]


def test_a_hook_of_the_backends_application_sees_each_task_that_is_sent(django_site: DjangoSite) -> None:
    django_site.append("shop/tasks.py", HEADED)
    django_site.program(f"""
        import asyncio
        from {FRAMEWORK} import task_backends
        task_backends["default"].app.before_enqueue(lambda draft: draft.headers.update(tenant=draft.payload["args"][0]))
        headed.enqueue("a")
        asyncio.run(headed.aenqueue("b"))
    """)
    django_site.drain()
    assert django_site.notes() == ["a a", "b b"]


HEADED = """
@task(takes_context=True)
def headed(context, name):
    note(f"{name} {context.message.headers['tenant']}")
"""
