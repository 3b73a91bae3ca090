"""Which launcher started a process."""

from __future__ import annotations

import pytest

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher.detection import REAPED_LATE, Ancestor, Found, find_launcher, given_launcher, run_id

PARALLEL, QUEUE, DROP = LauncherRule.PARALLEL, LauncherRule.QUEUE, LauncherRule.DROP
SHELL = Ancestor("dash", ("/bin/sh", "-c", "pollconsumer run"))
INIT = Ancestor("systemd", ("/sbin/init",))
JENKINS = {"JENKINS_URL": "https://ci.example/", "BUILD_TAG": "jenkins-mail-7"}
BUSYBOX = Ancestor("busybox", ("crond", "-f"))


@pytest.mark.parametrize(
    ("ancestors", "found"),
    [
        ([Ancestor("cron", ("/usr/sbin/CRON", "-f")), INIT], Found("cron", PARALLEL)),
        ([SHELL, Ancestor("cron", ("/usr/sbin/cron", "-f"))], Found("cron", PARALLEL)),
        ([SHELL, Ancestor("crond", ("/usr/sbin/CROND", "-n"))], Found("cron", PARALLEL)),
        ([BUSYBOX], Found("busybox", DROP, REAPED_LATE)),
        ([Ancestor("busybox", ("/bin/sh", "-c", "x")), BUSYBOX], Found("busybox", DROP, REAPED_LATE)),
        ([Ancestor("busybox", ("busybox", "crond", "-f"))], Found("busybox", DROP, REAPED_LATE)),
        ([Ancestor("", ("/bin/busybox", "crond"))], Found("busybox", DROP, REAPED_LATE)),
        ([Ancestor("busybox", ("busybox", "sh", "crond")), INIT], Found("", PARALLEL)),
        ([Ancestor("busybox", ("sh",)), INIT], Found("", PARALLEL)),
        ([SHELL, Ancestor("supercronic", ("supercronic", "/etc/crontab"))], Found("supercronic", DROP)),
        ([Ancestor("supercronic", ("supercronic", "-overlapping", "tab"))], Found("supercronic", PARALLEL)),
        ([Ancestor("flock", ("flock", "-n", "/tmp/lock", "pollconsumer", "run")), INIT], Found("flock", DROP)),
        ([Ancestor("flock", ("flock", "--nonblock", "/tmp/lock", "true"))], Found("flock", DROP)),
        ([Ancestor("flock", ("flock", "-w", "5", "/tmp/lock", "true"))], Found("flock", DROP)),
        ([Ancestor("flock", ("flock", "/tmp/lock", "true")), INIT], Found("flock", QUEUE)),
        ([Ancestor("flock", ("flock", "-n", "/tmp/lock", "true")), BUSYBOX], Found("flock", DROP)),
        ([], Found("", PARALLEL)),
        ([Ancestor("", ())], Found("", PARALLEL)),
    ],
)
def test_the_nearest_ancestor_that_is_a_launcher_decides(ancestors: list[Ancestor], found: Found) -> None:
    assert find_launcher({}, ancestors) == found


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"WEBJOBS_RUN_ID": "202611220959"}, Found("kudu", DROP)),
        ({"NOMAD_ALLOC_ID": "a1"}, Found("nomad", DROP)),
        ({"CLOUD_RUN_JOB": "mail"}, Found("cloud-run", PARALLEL)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_NAME": "mail-29400000"}, Found("kubernetes", PARALLEL)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Found("", PARALLEL)),
        ({"JOB_NAME": "jenkins"}, Found("", PARALLEL)),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_NAME": "mail", **JENKINS}, Found("", PARALLEL)),
        ({"INVOCATION_ID": "5f", "JOURNAL_STREAM": "8:1"}, Found("systemd", QUEUE)),
        ({"TRIGGER_UNIT": "pollconsumer.timer"}, Found("systemd", QUEUE)),
        ({"GITHUB_RUN_ID": "7"}, Found("github", PARALLEL)),
    ],
)
def test_the_environment_decides_where_no_ancestor_is_a_launcher(variables: dict[str, str], found: Found) -> None:
    assert find_launcher(variables, [SHELL, INIT]) == found


def test_an_ancestor_decides_before_the_environment_that_it_has_inherited() -> None:
    assert find_launcher({"INVOCATION_ID": "5f"}, [SHELL, BUSYBOX]).platform == "busybox"


def test_the_setting_replaces_the_rule_but_not_how_late_the_launcher_reaps() -> None:
    busybox = find_launcher({}, [BUSYBOX])
    assert given_launcher(LauncherRule.AUTO, busybox) == busybox
    assert given_launcher(DROP, busybox) == busybox
    assert given_launcher(DROP, Found("cron", PARALLEL)) == Found("cron", DROP)
    assert given_launcher(PARALLEL, Found("nomad", DROP)) == Found("nomad", PARALLEL)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, None),
        ({"GITHUB_RUN_ID": "6"}, "6"),
        ({"GITHUB_RUN_ID": "6", "NOMAD_ALLOC_ID": "5"}, "5"),
        ({"NOMAD_ALLOC_ID": "5", "JOB_NAME": "4", "KUBERNETES_SERVICE_HOST": "h"}, "4"),
        ({"NOMAD_ALLOC_ID": "5", "JOB_NAME": "jenkins"}, "5"),
        ({"JOB_NAME": "jenkins"}, None),
        ({"JOB_NAME": "mail", "KUBERNETES_SERVICE_HOST": "h", **JENKINS}, "jenkins-mail-7"),
        ({"BUILD_TAG": "v1", "GITHUB_RUN_ID": "6"}, "6"),
        ({"JOB_NAME": "4", "KUBERNETES_SERVICE_HOST": "h", "CLOUD_RUN_EXECUTION": "3"}, "3"),
        ({"CLOUD_RUN_EXECUTION": "3", "INVOCATION_ID": "2"}, "2"),
        ({"INVOCATION_ID": "2", "WEBJOBS_RUN_ID": "1"}, "1"),
        ({"INVOCATION_ID": "2", "WEBJOBS_RUN_ID": ""}, "2"),
    ],
)
def test_a_run_has_its_platforms_name(variables: dict[str, str], name: str | None) -> None:
    assert run_id(variables) == name
