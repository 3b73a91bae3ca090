"""``init project``: what it writes works as it stands, by the commands that it and the README name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.interface.settings.load import read_settings
from pollconsumer.platform_files.init_command import project_files

if TYPE_CHECKING:
    from tests.site import Site

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
SECTION = README.partition("## Your own handler\n")[2].partition("\n## ")[0]
WRITTEN = ["config.toml", "handlers.py", "test_handlers.py"]


def typed(site: Site, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """In a shell, in the order given, until one fails."""
    path = f"{Path(sys.executable).parent}:{os.defpath}"
    environment = site.environment | {"PATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    words = ["sh", "-ec", "\n".join(lines)]
    return subprocess.run(
        words, cwd=site.directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_commands_that_it_names_work_one_after_the_other(site: Site) -> None:
    begun = site.command("init", "project", "of ada's")
    assert (begun.returncode, begun.stderr) == (0, "")
    place = site.directory / "of ada's"
    *written, empty, said, first = begun.stdout.splitlines()[:6]
    assert (written, empty, said) == ([f"written: of ada's/{name}" for name in WRITTEN], "", "next:")
    *lines, last = begun.stdout.splitlines()[5:]
    assert (first, lines[0]) == (lines[0], """cd 'of ada'"'"'s'""")
    assert last.startswith("pollconsumer init cron --install ")
    done = typed(site, lines)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to ada@example.org: " in done.stderr
    assert "(empty): 1 completed\n" in done.stderr
    assert "1 passed" in done.stdout
    assert sorted(path.name for path in place.iterdir() if path.is_file()) == WRITTEN


def test_the_readmes_first_project_is_the_one_that_is_written_and_its_commands_work(site: Site) -> None:
    handlers = re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)
    commands = re.search(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    assert handlers is not None
    assert commands is not None
    assert "`pollconsumer init project mail`" in SECTION
    done = typed(site, ["pollconsumer init project mail", *commands[1].splitlines()])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to ada@example.org: " in done.stderr
    assert (site.directory / "mail" / "handlers.py").read_text() == handlers[1]


def test_a_namespace_is_valid_and_its_own_whatever_the_directory_is_called(tmp_path: Path) -> None:
    names = ["mail", "mail", "Mail.EU_1", "-", "x" * 255, "9lives", "ÄÖ", "a'b\"c\\"]
    found = set()
    for name in names:
        config = tmp_path / "config.toml"
        config.write_text(project_files(tmp_path / name)[0].text)
        found.add(read_settings(config).namespace)
    assert len(found) == len(names)
    assert sum(each.startswith("mail-") for each in found) == 3


@pytest.mark.parametrize("there", WRITTEN)
@pytest.mark.parametrize("as_link", [False, True])
def test_a_file_that_is_there_is_kept_and_no_other_written(site: Site, there: str, as_link: bool) -> None:
    place = site.directory / "mail"
    place.mkdir()
    if as_link:
        (place / there).symlink_to("nowhere")
    else:
        (place / there).write_text("mine")
    done = site.command("init", "project", "mail")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (73, "", 1)
    assert f"file exists: mail/{there}; " in done.stderr
    assert [path.name for path in place.iterdir()] == [there]
    assert as_link or (place / there).read_text() == "mine"


def test_it_needs_no_valid_configuration_and_makes_its_directory(site: Site) -> None:
    (site.directory / "config.toml").write_text("namespace =")
    assert site.command("init", "project", "a").returncode == 0
    assert sorted(path.name for path in (site.directory / "a").iterdir()) == WRITTEN


@pytest.mark.parametrize(
    "arguments", [("init", "project"), ("init", "cron", "--write"), ("dashboard", "--static")], ids=" ".join
)
def test_a_directory_whose_parent_is_not_there_is_not_made(site: Site, arguments: tuple[str, ...]) -> None:
    done = site.command(*arguments, "misspelt/a")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (73, "", 1)
    assert re.search(r": (no such directory|pages): misspelt; ", done.stderr)
    assert not (site.directory / "misspelt").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["project", "a", "--install"], 2, "init project; it takes DIR, and no option"),
        (["project", "a", "--write", "b"], 2, "init project; it takes DIR, and no option"),
        (["cron", "a"], 2, "unexpected argument: a; only 'init project' takes DIR"),
        (["project", ""], 2, "DIR: empty; name a path"),
        (["project", "config.toml"], 73, "config.toml/config.toml: Not a directory"),
        (["project", "open"], 78, "handlers' directory is writable by others: "),
    ],
)
def test_where_it_cannot_begin_it_is_one_line(site: Site, arguments: list[str], code: int, said: str) -> None:
    (site.directory / "open").mkdir()
    (site.directory / "open").chmod(0o777)
    done = site.command("init", *arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert said in done.stderr
    assert [*(site.directory / "open").iterdir()] == []
    assert not (site.directory / "a").exists()
