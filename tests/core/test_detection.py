"""Which launcher started a process: for each row of its tables an environment or a parent that only that row knows."""

from __future__ import annotations

import pytest

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher import (
    LAUNCHERS,
    PLATFORMS,
    REAPED_LATE,
    REAPED_LATE_BY_DCRON,
    UNKNOWN,
    Ancestor,
    Found,
    find_launcher,
    given_launcher,
    is_here,
    recorded_launcher,
    run_id,
)

PARALLEL, QUEUE, DROP = LauncherRule.PARALLEL, LauncherRule.QUEUE, LauncherRule.DROP
SHELL = Ancestor("dash", ("/bin/sh", "-c", "pollconsumer run"))
INIT = Ancestor("systemd", ("/sbin/init",))
JENKINS = {"JENKINS_URL": "https://ci.example/", "BUILD_TAG": "jenkins-mail-7", "JOB_NAME": "mail"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
UNDER_SYSTEMD = {"INVOCATION_ID": "5f", "JOURNAL_STREAM": "8:1"}
"""What a service's children inherit: a runner of CI, an agent."""
ECS = "ECS_CONTAINER_METADATA_URI_V4"
BUSYBOX = Ancestor("busybox", ("crond", "-f"))
STARTED_BY = [
    ([Ancestor("supercronic", ("supercronic", "-overlapping", "tab"))], Found("supercronic", PARALLEL)),
    ([SHELL, Ancestor("supercronic", ("supercronic", "/etc/crontab"))], Found("supercronic", DROP)),
    ([Ancestor("flock", ("flock", "-n", "/tmp/lock", "pollconsumer", "run")), INIT], Found("flock", DROP)),
    ([Ancestor("flock", ("flock", "--nonblock", "/tmp/lock", "true"))], Found("flock", DROP)),
    ([Ancestor("flock", ("flock", "-w", "5", "/tmp/lock", "true"))], Found("flock", DROP)),
    ([Ancestor("flock", ("flock", "-n", "/tmp/lock", "true")), BUSYBOX], Found("flock", DROP)),
    ([Ancestor("flock", ("flock", "/tmp/lock", "true")), INIT], Found("flock", QUEUE)),
    ([BUSYBOX], Found("busybox", DROP, REAPED_LATE)),
    ([Ancestor("busybox", ("/bin/sh", "-c", "x")), BUSYBOX], Found("busybox", DROP, REAPED_LATE)),
    ([Ancestor("busybox", ("busybox", "crond", "-f"))], Found("busybox", DROP, REAPED_LATE)),
    ([Ancestor("busybox.static", ("/usr/sbin/crond", "-f"))], Found("busybox", DROP, REAPED_LATE)),
    ([Ancestor("", ("/bin/busybox", "crond"))], Found("busybox", DROP, REAPED_LATE)),
    ([Ancestor("cron", ("/usr/sbin/CRON", "-f")), INIT], Found("cron", PARALLEL)),
    ([SHELL, Ancestor("cron", ("/usr/sbin/cron", "-f"))], Found("cron", PARALLEL)),
    ([Ancestor("crond", ("/usr/sbin/CROND", "-n")), Ancestor("crond", ("crond", "-n"))], Found("cron", PARALLEL)),
    ([SHELL, Ancestor("crond", ("/usr/sbin/crond", "-S"))], Found("dcron", DROP, REAPED_LATE_BY_DCRON)),
    ([SHELL, Ancestor("fcron", ("/usr/sbin/fcron", "-f")), INIT], Found("fcron", DROP)),
    ([Ancestor("launchd", ("/sbin/launchd",))], Found("launchd", DROP)),
]
NOT_BY = [
    [],
    [Ancestor("", ())],
    [Ancestor("busybox", ("busybox", "sh", "crond")), INIT],
    [Ancestor("busybox", ("sh",)), INIT],
    [Ancestor("vim", ("vim", "crond")), INIT],
]
KNOWN_BY = [
    ({"WEBJOBS_RUN_ID": "202611220959"}, Found("kudu", DROP), "202611220959"),
    (JENKINS, Found("jenkins", PARALLEL, is_watched=True), "jenkins-mail-7"),
    ({**POD, **JENKINS}, Found("jenkins", PARALLEL, is_watched=True), "jenkins-mail-7"),
    ({"GITLAB_CI": "true", "CI_JOB_ID": "81"}, Found("gitlab", PARALLEL, is_watched=True), "81"),
    ({"GITHUB_RUN_ID": "7"}, Found("github", PARALLEL), "7"),
    ({"DYNO": "scheduler.4711"}, Found("heroku", DROP), "scheduler.4711"),
    ({"RENDER": "true", "RENDER_INSTANCE_ID": "crn-1-x"}, Found("render", QUEUE), "crn-1-x"),
    ({"RAILWAY_ENVIRONMENT_ID": "e1"}, Found("railway", DROP), None),
    (
        {"CONTAINER_APP_JOB_NAME": "mail", "CONTAINER_APP_JOB_EXECUTION_NAME": "mail-x7"},
        Found("container-apps", PARALLEL),
        "mail-x7",
    ),
    ({"CLOUD_RUN_JOB": "mail", "CLOUD_RUN_EXECUTION": "mail-x7"}, Found("cloud-run", PARALLEL), "mail-x7"),
    ({"CLOUD_RUN_JOB": "mail"}, Found("cloud-run", PARALLEL), None),
    ({"K_SERVICE": "site", "K_REVISION": "site-1"}, Found("cloud-run-service", PARALLEL), None),
    ({"AWS_LAMBDA_FUNCTION_NAME": "site"}, Found("lambda", PARALLEL), None),
    ({ECS: "http://169.254.170.2/v4/f8f6-26"}, Found("ecs", PARALLEL), "f8f6-26"),
    ({"NOMAD_ALLOC_ID": "a1"}, Found("nomad", DROP), "a1"),
    ({"FLY_MACHINE_ID": "m1"}, Found("fly", PARALLEL, is_watched=True), None),
    ({**POD, "JOB_NAME": "mail-29400000"}, Found("kubernetes", PARALLEL), "mail-29400000"),
    ({"INVOCATION_ID": "5f", "JOURNAL_STREAM": "8:1"}, Found("systemd", QUEUE), "5f"),
    ({"TRIGGER_UNIT": "pollconsumer.timer"}, Found("systemd", QUEUE), None),
    ({"JOURNAL_STREAM": "8:1"}, Found("systemd", QUEUE), None),
]


@pytest.mark.parametrize(("ancestors", "found"), STARTED_BY)
def test_the_nearest_ancestor_that_is_a_launcher_decides(ancestors: list[Ancestor], found: Found) -> None:
    assert find_launcher({}, ancestors) == found
    assert recorded_launcher(found.platform, found.rule) == found


@pytest.mark.parametrize("ancestors", NOT_BY)
def test_a_process_that_only_resembles_a_launcher_is_none(ancestors: list[Ancestor]) -> None:
    assert find_launcher({}, ancestors) == UNKNOWN


@pytest.mark.parametrize(("variables", "found", "name"), KNOWN_BY)
def test_the_environment_decides_where_no_ancestor_is_a_launcher_and_names_the_run(
    variables: dict[str, str], found: Found, name: str | None
) -> None:
    assert find_launcher(variables, [SHELL, INIT]) == found
    assert run_id(variables) == name
    assert recorded_launcher(found.platform, found.rule) == found


@pytest.mark.parametrize("variables", [POD, {"JOB_NAME": "mail"}, {"DYNO": "web.1"}, {"BUILD_TAG": "v1"}])
def test_variables_that_others_set_too_say_nothing(variables: dict[str, str]) -> None:
    assert (find_launcher(variables, [SHELL]), run_id(variables)) == (UNKNOWN, None)


def test_each_row_of_the_tables_is_tried() -> None:
    tried = {next(row for row in PLATFORMS if is_here(row[1], variables)) for variables, _, _ in KNOWN_BY}
    assert tried == {*PLATFORMS}
    rows = {next(row for each in found for row in LAUNCHERS if row[1](each)) for found, _ in STARTED_BY}
    assert rows == {*LAUNCHERS}


@pytest.mark.parametrize(("variables", "found", "name"), KNOWN_BY)
def test_systemd_is_believed_last_since_services_pass_on_its_variables(
    variables: dict[str, str], found: Found, name: str | None
) -> None:
    assert find_launcher({**UNDER_SYSTEMD, **variables}, []) == found
    assert run_id({**UNDER_SYSTEMD, **variables}) == (name or "5f")


def test_an_ancestor_decides_before_the_environment_that_it_has_inherited() -> None:
    assert find_launcher({"INVOCATION_ID": "5f"}, [SHELL, BUSYBOX]).platform == "busybox"


def test_the_setting_replaces_the_rule_but_not_how_late_the_launcher_reaps() -> None:
    busybox = find_launcher({}, [BUSYBOX])
    assert given_launcher(LauncherRule.AUTO, busybox) == busybox
    assert given_launcher(DROP, busybox) == busybox
    assert given_launcher(DROP, Found("cron", PARALLEL)) == Found("cron", DROP)
    assert given_launcher(PARALLEL, Found("nomad", DROP)) == Found("nomad", PARALLEL)


def test_a_run_without_its_platforms_name_has_none() -> None:
    assert run_id({}) is None
    assert run_id({"WEBJOBS_RUN_ID": "", "INVOCATION_ID": "2"}) == "2"


def test_what_an_unknown_version_recorded_is_a_launcher_all_the_same() -> None:
    assert recorded_launcher("mars", "sideways") == Found("mars", PARALLEL)
    assert recorded_launcher("", "drop") == Found("", DROP, is_watched=True)
