"""A program's own configuration file: ``PollConsumer(config=...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.api.app import PollConsumer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site
    from tests.store.servers import Server


def test_a_program_has_the_settings_of_the_file_that_it_names_wherever_it_is_started(
    valkey: Server, tmp_path: Path
) -> None:
    (tmp_path / "of_site.toml").write_text(f'store = "{valkey.url}"\nnamespace = "site"\n')
    sent = PollConsumer(config=tmp_path / "of_site.toml").enqueue("mail.send")
    assert PollConsumer(store=valkey.url, namespace="site").message(sent.id).id == sent.id
    flag = PollConsumer(config=str(tmp_path / "of_site.toml"), namespace="other").enqueue("mail.send")
    assert PollConsumer(store=valkey.url, namespace="other").message(flag.id).id == flag.id


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"not found: /nowhere\.toml"):
        PollConsumer(config="/nowhere.toml").enqueue("mail.send")


def test_in_a_launch_its_settings_are_those_of_the_launch(site: Site) -> None:
    """Otherwise a handler's follow-ups would go where no launch looks."""
    (site.directory / "of_site.toml").write_text('namespace = "elsewhere"\n')
    (site.directory / "handlers.py").write_text(
        "from pathlib import Path\n"
        "from pollconsumer import PollConsumer\n"
        "app = PollConsumer(config=Path(__file__).with_name('of_site.toml'))\n"
        "@app.handler\n"
        "def first() -> None: app.enqueue('second')\n"
        "@app.handler\n"
        "def second() -> None: Path('notes').write_text('second')\n"
    )
    site.enqueue("first")
    assert site.drain().stderr == ""
    assert site.notes() == ["second"]
