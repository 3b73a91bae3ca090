"""``init cron --install``: a user's crontab has the lines of a configuration, and all others as they were."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.logs import logs
from pollconsumer.platform_files import crontabs
from pollconsumer.platform_files.crontabs import block_of, with_block
from tests.short_directory import short_directory
from tests.users import Users

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(sys.executable).with_name("pollconsumer")
SPOOL = "/var/spool/cron/crontabs"
PASSWORD = "hunter2hunter2"
CRONTAB = """#!/bin/sh
table="$0.table"
echo "$1" >> "$0.calls"
case $1 in
-l) [ -f "$table" ] || {{ echo "{absent}" >&2; exit 1; }}; cat "$table" ;;
-r) rm "$table" ;;
-) {write} ;;
esac
"""
NO_CRONTAB = "no crontab for ada"
WRITE = 'cat > "$table"'
TABLES = {
    "none": None,
    "empty": b"",
    "lines": b"# mine\n\nMAILTO=ada\n*/5 * * * *\texec /opt/a \\%b\n",
    "line ends of Windows": b"MAILTO=ada\r\n0 4 * * * /opt/a\r\n",
    "bytes that are no UTF-8": b"# \xff\xe9\n0 4 * * * /opt/\xfc\x0b\x85\n",
    "comments like ours": b"# pollconsumer begins: a\n# pollconsumer end\n #  pollconsumer begin: config.toml\n",
    "lines of another configuration": block_of(Path("/another/config.toml"), ["* * * * * exec a", "#"]),
}


class Command:
    """A ``crontab`` before all others on PATH."""

    def __init__(self, place: Path) -> None:
        self.path = place / "bin" / "crontab"
        self.path.parent.mkdir()
        self._table = Path(f"{self.path}.table")
        self.be()

    def be(self, *, absent: str = NO_CRONTAB, write: str = WRITE) -> None:
        self.path.write_text(CRONTAB.format(absent=absent, write=write))
        self.path.chmod(0o755)

    @property
    def table(self) -> bytes:
        return self._table.read_bytes() if self._table.exists() else b""

    @table.setter
    def table(self, content: bytes | None) -> None:
        self._table.unlink(missing_ok=True)
        if content is not None:
            self._table.write_bytes(content)

    def calls(self) -> list[str]:
        return Path(f"{self.path}.calls").read_text().split()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for kind in ("CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("XDG_DATA_HOME", str(Path(pwd.getpwuid(os.getuid()).pw_dir, ".local", "share")))
    (tmp_path / "config.toml").write_text('[consumer]\nschedule = "* * * * *"\n')
    yield tmp_path
    logs.configure()


@pytest.fixture
def crontab(place: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    command = Command(place)
    monkeypatch.setenv("PATH", f"{command.path.parent}:{os.defpath}")
    return command


def block(config: Path, schedule: str = "* * * * *", told: str = "") -> bytes:
    lines = [
        f"{schedule} exec {PROGRAM} run --config {config}{told}",
        f"7 * * * * exec {PROGRAM} doctor --quiet --config {config}",
    ]
    return block_of(config, lines)


# What is added, and what is left


@pytest.mark.parametrize("before", TABLES.values(), ids=TABLES)
def test_lines_are_added_and_taken_out_and_all_others_stay_as_they_are(
    run: Any, place: Path, crontab: Command, before: bytes | None
) -> None:
    crontab.table = before
    added = block(place / "config.toml")
    code, out, err = run("init", "cron", "--install")
    assert (code, err, crontab.table) == (0, "", (before or b"") + added)
    heading, *shown = out.splitlines(keepends=True)
    assert heading.startswith("added to the crontab of ")
    assert "".join(shown).encode() == added
    code, out, err = run("init", "cron", "--uninstall")
    assert (code, err, crontab.table) == (0, "", before or b"")
    heading, *shown = out.splitlines(keepends=True)
    assert heading.startswith("taken out of the crontab of ")
    assert "".join(shown).encode() == added


def test_a_last_line_without_a_line_feed_gets_one_since_cron_ignores_it_without(
    run: Any, place: Path, crontab: Command
) -> None:
    crontab.table = b"0 4 * * * /opt/a"
    run("init", "cron", "--install")
    assert crontab.table == b"0 4 * * * /opt/a\n" + block(place / "config.toml")


def test_what_is_there_already_is_not_written_again(run: Any, crontab: Command) -> None:
    run("init", "cron", "--install")
    once = crontab.table
    code, out, _ = run("init", "cron", "--install")
    assert (code, crontab.table, crontab.calls().count("-")) == (0, once, 1)
    assert out.startswith("unchanged in the crontab of ")


def test_new_lines_replace_the_former_ones_where_they_are_also_where_a_person_has_changed_these(
    run: Any, place: Path, crontab: Command
) -> None:
    config = place / "config.toml"
    changed = block(config).replace(b"* * * * * exec", b"#* * * * * exec").replace(b"\n", b"\r\n")
    crontab.table = b"# before\n" + changed + b"# after\n" + block(config)
    code, out, said = run("init", "cron", "--install", "--schedule", "*/5 * * * *")
    assert "unserved: 80% of each 5m: a launch ends after 1m, " in said
    new = block(config, "*/5 * * * *", " --schedule '*/5 * * * *'")
    assert (code, crontab.table) == (0, b"# before\n" + new + b"# after\n")
    assert out.startswith("renewed in the crontab of ")


def test_queues_with_a_line_of_their_own_keep_it_until_all_lines_are_taken_out_or_no_launch_serves_them(
    run: Any, place: Path, crontab: Command
) -> None:
    def install(*queues: str) -> tuple[list[str], str]:
        code, out, err = run("init", "cron", "--install", *(word for queue in queues for word in ("--queue", queue)))
        launches = [line for line in crontab.table.decode().splitlines() if " run " in line]
        assert code == 0
        assert out.encode().endswith(crontab.table)
        return [line.partition("config.toml")[2].replace(" --queue", "").strip() for line in launches], err

    served = 'queues = ["default", "mail", "slow", "huge"]'
    config = place / "config.toml"
    config.write_text(f'[consumer]\nschedule = "* * * * *"\n{served}\n')
    assert install("slow") == (["default mail huge", "slow"], "")
    assert install() == (["default mail huge", "slow"], "")
    assert install("huge") == (["default mail", "slow", "huge"], "")
    assert install() == (["default mail", "slow", "huge"], "")
    assert install("slow", "mail") == (["default", "huge", "slow mail"], "")
    config.write_text(config.read_text().replace(', "huge"', ""))
    assert install() == (
        ["default", "slow mail"],
        "pollconsumer: no launch serves queue huge any more: the crontab has no line for it now\n",
    )
    assert run("init", "cron", "--uninstall")[0] == 0
    assert crontab.table == b""
    assert install() == ([""], "")


def test_check_shows_the_launches_of_the_crontab_where_no_schedule_is_set(
    run: Any, place: Path, crontab: Command
) -> None:
    def schedule() -> str | None:
        code, out, err = run("check", "--json")
        assert code == 0, err
        found = json.loads(out)["consumer"]
        expected: str | None = found["schedule"]
        assert bool(found["next_launches"]) == bool(expected)
        return expected

    (place / "config.toml").write_text('data = "data"\n')
    assert schedule() is None
    run("init", "cron", "--install", "--schedule", "*/20 1-5 * * *")
    assert schedule() == "*/20 1-5 * * *"
    crontab.path.write_text("#!/bin/sh\nexit 1\n")
    assert schedule() is None


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ("*/5 * * *", "four fields, need five"),
        ("30 2 * * 8", "day of week must be 0-7, field 5"),
        ("0 0 31 2 *", "no such day ever comes"),
    ],
)
def test_check_warns_of_an_invalid_schedule_in_the_crontab_and_shows_none(
    run: Any, place: Path, crontab: Command, schedule: str, reason: str
) -> None:
    (place / "config.toml").write_text('data = "data"\n')
    run("init", "cron", "--install", "--schedule", "*/20 1-5 * * *")
    crontab.table = crontab.table.replace(b"--schedule '*/20 1-5 * * *'", f"--schedule '{schedule}'".encode())
    code, out, err = run("check", "--json")
    assert (code, json.loads(out)["consumer"]["schedule"]) == (0, None)
    what = f"the crontab's --schedule of {place / 'config.toml'}"
    said = f"pollconsumer: warning: {what}: {schedule}; {reason}: correct it with crontab -e"
    assert [line for line in err.splitlines() if "crontab" in line] == [said]


@pytest.mark.usefixtures("crontab")
def test_check_advises_no_line_for_long_work_that_the_crontab_has(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "config.toml").write_text('data = "data"\nhandlers = ["long_work_here"]\n')
    (place / "long_work_here.py").write_text(
        "from pollconsumer import PollConsumer\n"
        "app = PollConsumer()\n"
        "@app.handler(queue='slow', timeout='10m')\n"
        "def report(): ...\n"
        "@app.handler\n"
        "def mail(): ...\n"
    )
    monkeypatch.syspath_prepend(place)

    def advised() -> list[str]:
        code, out, err = run("check", "--json")
        assert code == 0, err
        return [*json.loads(out)["long_work"]]

    run("init", "cron", "--install")
    assert advised() == ["report"]
    run("init", "cron", "--install", "--queue", "slow")
    assert advised() == []


def test_two_configurations_stand_side_by_side(run: Any, place: Path, crontab: Command) -> None:
    one, other = place / "config.toml", place / "other.toml"
    other.write_text(one.read_text())
    run("init", "cron", "--install")
    run("--config", "other.toml", "init", "cron", "--install")
    assert crontab.table == block(one) + block(other)
    run("init", "cron", "--uninstall")
    assert crontab.table == block(other)


def test_a_configuration_is_the_same_however_it_is_named(run: Any, place: Path, crontab: Command) -> None:
    run("init", "cron", "--install")
    (place / "link").symlink_to(place)
    code, out, _ = run("--config", f"link/../{place.name}/config.toml", "init", "cron", "--install")
    assert (code, crontab.table.count(b" begin: ")) == (0, 1)
    assert out.startswith("renewed")
    assert run("--config", "link/config.toml", "init", "cron", "--uninstall")[0] == 0
    assert crontab.table == b""


@pytest.mark.parametrize("content", ["namespace =", None], ids=["broken", "gone"])
def test_lines_are_taken_out_though_the_configuration_is_of_no_use_any_more(
    run: Any, place: Path, crontab: Command, content: str | None
) -> None:
    run("init", "cron", "--install")
    config = place / "config.toml"
    config.unlink() if content is None else config.write_text(content)
    assert run("init", "cron", "--uninstall")[0] == 0
    assert crontab.table == b""
    code, out, err = run("init", "cron", "--uninstall")
    assert (code, err) == (0, "")
    assert out.endswith(f" has no lines of {config}\n")


def test_a_line_that_launches_the_configuration_besides_is_named(run: Any, place: Path, crontab: Command) -> None:
    line = f"* * * * * exec pollconsumer run --config {place}/config.toml"
    crontab.table = f"# {line}\n{line} --queue a\n".encode()
    code, _, err = run("init", "cron", "--install")
    assert (code, err.count("\n")) == (0, 1)
    assert err.endswith(f"remove it with crontab -e: {line} --queue a\n")


lines = st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b" ")), max_size=5)
ours = st.sampled_from([block(Path("/other/c")), b"# pollconsumer begin: /c\r\n# pollconsumer end: /c\n", b"\0\r\n"])


@given(st.lists(lines.map(lambda each: b"".join(line + b"\n" for line in each)) | ours, max_size=6).map(b"".join))
def test_whatever_a_crontab_holds_lines_put_into_it_come_out_again(content: bytes) -> None:
    config, added = Path("/a b%/c"), block(Path("/a b%/c"))
    changed, former = with_block(content, config, added)
    assert (changed, former) == (content + added, b"")
    assert with_block(changed, config, added) == (changed, added)
    assert with_block(changed, config, b"") == (content, added)
    moved = changed + content
    assert with_block(moved, config, b"") == (content + content, added)


@pytest.mark.parametrize("missing", [0, -1], ids=["begin", "end"])
def test_a_comment_without_the_other_changes_nothing(run: Any, place: Path, crontab: Command, missing: int) -> None:
    config = place / "config.toml"
    whole = block(config).splitlines(keepends=True)
    del whole[missing]
    crontab.table = before = b"0 4 * * * a\n" + b"".join(whole) + b"0 5 * * * b\n" + block(place / "other.toml")
    for option in ("--install", "--uninstall"):
        code, out, err = run("init", "cron", option)
        assert (code, out, err.count("\n"), crontab.table) == (78, "", 1, before)
        assert "crontab -e" in err
    with pytest.raises(ConfigurationError):
        with_block(b"".join(whole) + block(config), config, b"")


# What a line needs


def test_lines_bring_their_variables_and_set_none_for_those_that_follow(
    run: Any, place: Path, crontab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", f"{place}/data")
    assert run("--namespace", "mine", "init", "cron", "--install")[0] == 0
    lines = [line for line in crontab.table.decode().splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    for line in lines:
        assert f" set -a; . {place}/pollconsumer.env; exec env XDG_DATA_HOME={place}/data " in line
        command = " ".join(line.split()[5:])
        shown = command.partition(f" {PROGRAM} ")[0]
        told = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True, env={}, cwd="/").stdout
        assert "POLLCONSUMER_NAMESPACE=mine" in told


def test_a_password_of_the_environment_is_in_a_file_beside_and_not_in_the_crontab(
    run: Any, place: Path, crontab: Command
) -> None:
    url = f"redis://:{PASSWORD}@h"
    code, out, err = run("--store", url, "init", "cron", "--install")
    assert (code, err) == (0, "")
    assert PASSWORD not in out + crontab.table.decode()
    file = place / "pollconsumer.env"
    assert (PASSWORD in file.read_text(), file.stat().st_mode & 0o777) == (True, 0o600)
    before = crontab.table
    assert run("--store", "redis://h", "init", "cron", "--install")[0] == 73  # the file differs
    assert (crontab.table, PASSWORD in file.read_text()) == (before, True)
    assert run("--store", "redis://h", "init", "cron", "--install", "--force")[0] == 0
    assert PASSWORD not in file.read_text()


# What fails


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["init", "systemd", "--install"], "--install: systemd; only 'init cron'"),
        (["init", "docker", "--uninstall"], "--uninstall: docker; only 'init cron'"),
        (["init", "cron", "--install", "--uninstall"], "--uninstall; "),
        (["init", "cron", "--uninstall", "--force"], "--uninstall; "),
        (["init", "cron", "--uninstall", "--write", "out"], "--uninstall; "),
        (["init", "cron", "--uninstall", "--image", "us/it"], "--image: us/it; only kubernetes"),
    ],
)
def test_wrong_usage_is_one_line(run: Any, crontab: Command, arguments: list[str], said: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert crontab.table == b""


def test_without_a_configuration_file_there_is_nothing_that_a_line_could_name(
    run: Any, place: Path, crontab: Command
) -> None:
    (place / "config.toml").unlink()
    code, _, err = run("-q", "init", "cron", "--install")
    assert (code, err.count("\n"), crontab.table) == (78, 1, b"")


REFUSAL = "You (ada) are not allowed to use this program (crontab)\nSee crontab(1) for more information"
SILENT = "cat > /dev/null"


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [
        ({"absent": REFUSAL}, 77, "crontab: You (ada) are not allowed to use this program (crontab); see cron.allow"),
        ({"absent": "crontab: must be suid to work properly"}, 73, "crontab: must be suid to work properly; "),
        ({"absent": ""}, 73, "crontab: ended with 1; "),
        ({"write": f"{SILENT}; echo '\"-\":2: bad minute' >&2; exit 1"}, 73, 'crontab: "-":2: bad minute; '),
        ({"write": "exit 1"}, 73, "crontab: ended with 1; "),
        ({"write": SILENT}, 73, "crontab: is not what was written; "),
        ({"write": "exec sleep 60"}, 73, "crontab: has not ended within 0.5s; "),
    ],
)
def test_what_crontab_does_not_do_is_one_line(
    run: Any, crontab: Command, monkeypatch: pytest.MonkeyPatch, behaviour: dict[str, str], code: int, said: str
) -> None:
    if "sleep" in str(behaviour):
        monkeypatch.setattr(crontabs, "PATIENCE", 0.5)
    crontab.be(**behaviour)
    found, out, err = run("init", "cron", "--install")
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert said in err


@pytest.mark.parametrize("absent", [NO_CRONTAB, "crontab: can't open 'ada': No such file or directory"])
def test_where_there_is_none_there_is_one_afterwards(run: Any, crontab: Command, absent: str) -> None:
    crontab.be(absent=absent)
    assert run("init", "cron", "--install")[0] == 0
    assert crontab.table


@pytest.mark.parametrize(
    ("option", "fix"),
    [
        ("--install", "install cron, or put what"),
        ("--uninstall", "remove the lines of 'init cron' where they were put"),
    ],
)
def test_without_the_command_one_line_says_what_to_do_instead(
    run: Any, monkeypatch: pytest.MonkeyPatch, place: Path, option: str, fix: str
) -> None:
    monkeypatch.setenv("PATH", str(place))
    code, out, err = run("init", "cron", option)
    assert (code, out, err.count("\n")) == (73, "", 1)
    assert f"crontab: no such command; {fix}" in err


# A real one


@pytest.fixture
def users() -> Iterator[Users]:
    directory = short_directory()
    directory.chmod(0o755)
    yield Users(directory)
    shutil.rmtree(directory)


@pytest.mark.crossing
@pytest.mark.skipif(not (Path(SPOOL).is_dir() and shutil.which("crontab")), reason="needs Debian's cron")
def test_a_user_of_a_real_cron_gets_the_lines_and_is_rid_of_them(users: Users) -> None:
    """The crontabs of the machine are not seen: theirs are mounted over them."""
    spool, found = users.place / "crontabs", Path(SPOOL).stat()
    spool.mkdir()
    os.chown(spool, 0, found.st_gid)
    spool.chmod(found.st_mode)
    config = users.place / "config.toml"
    config.write_text('[consumer]\nschedule = "* * * * *"\n')

    def by_ada(*words: str, text: str = "") -> str:
        inner = users.words("ada", *words)
        mounted = ["unshare", "--mount", "sh", "-c", f'mount --bind {spool} {SPOOL} && exec "$@"', "sh", *inner]
        environment = {"HOME": str(users.place / "ada"), "PATH": os.defpath}
        done = subprocess.run(
            mounted, input=text, capture_output=True, text=True, check=False, env=environment, cwd=users.place
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def init(option: str) -> str:
        return by_ada(sys.executable, "-m", "pollconsumer", "--config", str(config), "init", "cron", option)

    mine = "# of ada\nMAILTO=ada\n0 4 * * *\t/opt/a\n"
    by_ada("crontab", "-", text=mine)
    assert init("--install").startswith("added to the crontab of ada:\n")
    assert by_ada("crontab", "-l") == mine + block(config).decode()
    assert init("--install").startswith("unchanged in the crontab of ada:\n")
    assert init("--uninstall").startswith("taken out of the crontab of ada:\n")
    assert by_ada("crontab", "-l") == mine
    by_ada("crontab", "-r")
    init("--install")
    init("--uninstall")
    assert [*spool.iterdir()] == []
