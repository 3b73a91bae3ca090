"""The example of a Django site: its pages by Django's client, its launches as cron would start them."""

from __future__ import annotations

import shutil
import sys
from email import message_from_string
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.forks import DJANGO_FORKS

if TYPE_CHECKING:
    from email.message import Message

    from tests.site import Launch, Site

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "django"
CLIENT = "from django.test import Client\nclient = Client(SERVER_NAME='localhost')\n"
ORDER = CLIENT + "print(client.post('/', {'item': 'a kettle', 'email': 'bob@example.org'}).headers['Location'], end='')"
SHOW = CLIENT + "print(client.get({!r}).content.decode())"


class Shop:
    """The example, with an empty database."""

    def __init__(self, site: Site) -> None:
        self.site = site
        shutil.copytree(EXAMPLE, site.directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        # Launches in whichever second of a minute the test runs.
        config = (EXAMPLE / "config.toml").read_text().replace('schedule = "* * * * *"\n', "")
        (site.directory / "config.toml").write_text(config)
        site.environment["DJANGO_SETTINGS_MODULE"] = "website.settings"
        self.program("from django.core.management import call_command; call_command('migrate')")

    def manage(self, *arguments: str) -> str:
        return self._printed(self.site.start_program([sys.executable, "manage.py", *arguments]))

    def program(self, text: str) -> str:
        """What a program of the site prints."""
        words = ("-c", f"import django; django.setup()\n{text}")
        return self._printed(DJANGO_FORKS.start(words, self.site.directory, self.site.environment, {}))

    def _printed(self, process: Launch) -> str:
        output, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
        return output

    def mails(self) -> list[Message]:
        files = sorted((self.site.directory / "mails").iterdir())
        return [message_from_string(file.read_text()) for file in files]


@pytest.fixture
def shop(site: Site) -> Shop:
    return Shop(site)


def test_an_order_is_confirmed_by_the_next_launch_and_its_page_says_so(shop: Shop) -> None:
    page = shop.program(ORDER)
    assert "Confirmation: READY" in shop.program(SHOW.format(page))
    done = shop.site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    [mail] = shop.mails()
    assert (mail["To"], mail["Subject"]) == ("bob@example.org", "Order 1")
    assert "You have ordered a kettle." in mail.get_payload()
    assert "Confirmation: SUCCESSFUL at" in shop.program(SHOW.format(page))
    (shop.site.directory / "config.toml").write_text('namespace = "emptied"')
    assert "Confirmation: no longer known" in shop.program(SHOW.format(page))


def test_a_mail_that_cannot_be_sent_is_shown_with_its_error(shop: Shop) -> None:
    page = shop.program(ORDER)
    (shop.site.directory / "mails").write_text("no directory")
    assert shop.site.drain().stderr == ""  # it is tried again
    shown = shop.program(SHOW.format(page))
    assert "Confirmation: READY" in shown
    assert "is not a directory: " in shown


def test_the_report_is_sent_by_a_recurrence(shop: Shop) -> None:
    shop.program(ORDER)
    shop.site.drain()
    assert shop.site.json("recurrences", "list")[0]["next"][11:] in ("00:30:00.000Z", "01:30:00.000Z")
    assert shop.site.command("recurrences", "trigger", "report").returncode == 0
    assert shop.site.drain().stderr == ""
    [report] = [mail for mail in shop.mails() if mail["To"] == "ada@example.org"]
    assert "1: a kettle" in report.get_payload()


def test_the_checks_of_django_and_ours_find_nothing_in_it(shop: Shop) -> None:
    assert "no issues" in shop.manage("check")
    shop.manage("makemigrations", "--check")
    assert shop.site.command("check").returncode == 0
