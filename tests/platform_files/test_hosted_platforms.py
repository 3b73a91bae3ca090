"""``init`` for platforms that others run: each file parses, and has what the configuration says, by reference what is
secret."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.cron_expression import Cron
from pollconsumer.interface.settings.model import CommandSettings, ConsumerSettings, Settings, changed
from pollconsumer.platform_files import calendar
from pollconsumer.platform_files.files import File
from pollconsumer.platform_files.init_command import PLATFORMS
from pollconsumer.platform_files.installation import Installation

yaml: Any = pytest.importorskip("yaml")

URL = "rediss://app:hunter2hunter2@redis.example:6380/2"
IMAGE = "registry.example/shop@sha256:77"
ALWAYS_BATON = ["--handoff", "baton", "--launcher", "parallel"]
TOLD = ["--config", "/app/settings.toml", "--schedule", "*/2 * * * *"]
PROGRAM = "/opt/pollconsumer/bin/pollconsumer"


def shop(place: Path = Path("/srv/shop"), store: str = URL, **more: Any) -> Installation:
    """A configuration that has little in common with the default one."""
    settings = changed(
        Settings(store=store, directory=place, config=place / "settings.toml"),
        namespace="shop",
        commands={"backup": CommandSettings(command=("backup",), timeout=100.0)},
        consumer=ConsumerSettings(timeout=120.0, grace=20.0, memory_limit=500 << 20),
    )
    environment = {"POLLCONSUMER_STORE": store, "POLLCONSUMER_CONSUMER__IDLE_TIME": "1s"}
    given = {"schedule": "*/2 * * * *", "image": IMAGE, "environment": environment} | more
    return Installation(settings, (f"{place}/bin/pollconsumer",), "ada", **given)


def only(platform: str, installation: Installation) -> str:
    [file] = PLATFORMS[platform](installation)
    return file.text


def read(text: str) -> Any:
    return yaml.safe_load(text)


def test_cloud_run_starts_a_task_of_the_image_with_secrets_by_name() -> None:
    text = only("cloudrun", shop())
    job = read(text)
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "shop")
    task = job["spec"]["template"]["spec"]["template"]["spec"]
    assert (task["maxRetries"], task["timeoutSeconds"]) == (0, 440 + 120 + 60)
    [container] = task["containers"]
    assert container["image"] == IMAGE
    assert container["command"] == [PROGRAM, "run", *TOLD, *ALWAYS_BATON]
    assert container["resources"]["limits"]["memory"] == "625Mi"
    by_name = {each["name"]: each.get("valueFrom", {}).get("secretKeyRef") for each in container["env"]}
    assert by_name == {
        "POLLCONSUMER_STORE": {"name": "shop-store", "key": "latest"},
        "POLLCONSUMER_CONSUMER__IDLE_TIME": {"name": "shop-consumer-idle-time", "key": "latest"},
        "HOME": None,
    }
    assert "gcloud scheduler jobs create http shop" in text
    assert '--schedule "*/2 * * * *"' in text
    assert 'printf %s "$POLLCONSUMER_STORE" | gcloud secrets create shop-store' in text


def test_ecs_starts_a_task_of_the_image_with_parameters_by_name() -> None:
    task, schedule = (read(file.text) for file in PLATFORMS["ecs"](shop()))
    [container] = task["containerDefinitions"]
    assert (task["family"], task["cpu"], task["memory"]) == ("shop", "256", "1024")
    assert [*container["entryPoint"], *container["command"]] == [PROGRAM, "run", *TOLD, *ALWAYS_BATON]
    assert (container["image"], container["stopTimeout"]) == (IMAGE, 115)
    assert container["secrets"] == [
        {"name": name, "valueFrom": f"/shop/{name}"}
        for name in ("POLLCONSUMER_CONSUMER__IDLE_TIME", "POLLCONSUMER_STORE")
    ]
    assert (schedule["ScheduleExpression"], schedule["ScheduleExpressionTimezone"]) == ("cron(0/2 * * * ? *)", "UTC")
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}, "a bare OFF would be false"
    assert schedule["Target"]["EcsParameters"]["TaskDefinitionArn"].endswith(":task-definition/shop")
    assert schedule["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 0}


@pytest.mark.parametrize(
    ("limit", "cpu", "memory"), [(None, "256", "512"), (1700 << 20, "1024", "3072"), (20_000 << 20, "1024", "8192")]
)
def test_a_task_of_fargate_has_a_size_that_there_is(limit: int | None, cpu: str, memory: str) -> None:
    installation = shop()
    settings = changed(installation.settings, consumer=ConsumerSettings(memory_limit=limit))
    task = read(PLATFORMS["ecs"](Installation(settings, ("p",), "ada"))[0].text)
    assert (task["cpu"], task["memory"]) == (cpu, memory)


def test_container_apps_start_a_replica_of_the_image_with_secrets_of_a_vault() -> None:
    properties = read(only("containerapps", shop()))["properties"]
    configuration, [container] = properties["configuration"], properties["template"]["containers"]
    assert configuration["triggerType"] == "Schedule"
    assert configuration["scheduleTriggerConfig"]["cronExpression"] == "*/2 * * * *"
    assert (configuration["replicaRetryLimit"], configuration["replicaTimeout"]) == (0, 620)
    assert (container["image"], container["command"]) == (IMAGE, [PROGRAM, "run", *TOLD, *ALWAYS_BATON])
    assert container["resources"] == {"cpu": 0.5, "memory": "1.0Gi"}
    known = {secret["name"]: secret["keyVaultUrl"] for secret in configuration["secrets"]}
    named = {each["name"]: known[each["secretRef"]] for each in container["env"] if "secretRef" in each}
    assert named["POLLCONSUMER_STORE"] == "https://VAULT.vault.azure.net/secrets/shop-store"
    assert {*named} == {"POLLCONSUMER_STORE", "POLLCONSUMER_CONSUMER__IDLE_TIME"}


def test_render_asks_for_variables_or_brings_a_store_that_keeps_and_evicts_nothing() -> None:
    [cron] = read(only("render", shop()))["services"]
    assert (cron["type"], cron["name"], cron["schedule"]) == ("cron", "shop", "*/2 * * * *")
    assert cron["buildCommand"] == "pip install --requirement requirements.txt"
    words = ["--config", "settings.toml", *TOLD[2:], "--handoff", "deadline", "--launcher", "queue"]
    assert shlex.split(cron["startCommand"]) == ["exec", "pollconsumer", "run", *words]
    assert all(each["sync"] is False for each in cron["envVars"])
    assert {each["key"] for each in cron["envVars"]} == {"POLLCONSUMER_STORE", "POLLCONSUMER_CONSUMER__IDLE_TIME"}
    store, cron = read(only("render", shop(store="embedded", environment={})))["services"]
    assert (store["maxmemoryPolicy"], store["plan"], store["ipAllowList"]) == ("noeviction", "starter", [])
    [variable] = cron["envVars"]
    assert variable == {
        "key": "POLLCONSUMER_STORE",
        "fromService": {"name": store["name"], "type": "keyvalue", "property": "connectionString"},
    }


def test_gitlab_has_a_job_that_its_own_schedule_runs_and_nothing_interrupts() -> None:
    text = only("gitlab", shop())
    [(name, job)] = read(text).items()
    assert (name, job["resource_group"], job["interruptible"]) == ("shop", "shop", False)
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule" && $LAUNCH == "shop"'}]
    assert job["timeout"] == "21 minutes"  # a window of five, a handling of five, some grace, and the installation
    words = ["--config", "settings.toml", "--schedule", "*/5 * * * *", "--until-empty", "--timeout", "300s"]
    assert shlex.split(job["script"][0]) == ["pollconsumer", "run", *words, "--launcher", "queue"]
    assert 'glab schedule create --cron "*/5 * * * *"' in text
    assert 'printf %s "$POLLCONSUMER_STORE" | glab variable set POLLCONSUMER_STORE --masked' in text


@pytest.mark.parametrize(
    ("store", "said", "imported"),
    [
        (URL, "POLLCONSUMER_STORE: preserve(),", "defineRailway, github, preserve, project, service"),
        (
            "embedded",
            "POLLCONSUMER_STORE: store.env.REDIS_URL,",
            "defineRailway, github, preserve, project, redis, service",
        ),
    ],
)
def test_railway_runs_a_cron_service_and_keeps_what_else_the_project_has(store: str, said: str, imported: str) -> None:
    text = only("railway", shop(store=store, environment={"POLLCONSUMER_STORE": URL} if store == URL else {}))
    assert f'import {{ {imported} }} from "railway/iac";' in text
    assert said in text
    assert 'export const partial = "shop";' in text
    assert 'cronSchedule: "*/5 * * * *",' in text
    assert 'RAILWAY_DEPLOYMENT_DRAINING_SECONDS: "115",' in text
    start = re.search(r"start: (.*),$", text, re.MULTILINE)
    assert start is not None
    words = ["--config", "settings.toml", "--schedule", "*/5 * * * *", "--until-empty", "--timeout", "300s"]
    assert shlex.split(json.loads(start[1])) == ["pollconsumer", "run", *words, "--linger", "30s", "--launcher", "drop"]
    brings = re.search(r"resources: \[(.*)\]", text)
    assert brings is not None
    assert brings[1] == ("launch" if store == URL else "store, launch")


@pytest.fixture
def printed(tmp_path: Path) -> Path:
    """A directory whose program ``pollconsumer`` prints its words and its variables."""
    program = tmp_path / "bin" / "pollconsumer"
    program.parent.mkdir()
    script = "import json, os, sys\nprint(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
    program.write_text(f"#!{sys.executable}\n{script}")
    program.chmod(0o755)
    return tmp_path


def outcome(words: list[str], place: Path, **variables: str) -> tuple[list[str], dict[str, str]]:
    surroundings = {"PATH": f"{place}/bin:/usr/bin:/bin", **variables}
    done = subprocess.run(words, cwd=place, env=surroundings, capture_output=True, text=True, check=True)
    arguments, environment = json.loads(done.stdout)
    return arguments, environment


def test_herokus_script_runs_a_launch_that_is_gone_before_the_dyno_is(printed: Path) -> None:
    text = only("heroku", shop(printed))
    (printed / "heroku.sh").write_text(text)
    arguments, environment = outcome(["sh", "heroku.sh"], printed, POLLCONSUMER_STORE="redis://mine")
    words = ["--config", "settings.toml", "--schedule", "*/10 * * * *", "--until-empty", "--timeout", "600s"]
    assert arguments == ["run", *words, "--linger", "30s", "--launcher", "drop"]
    assert environment["POLLCONSUMER_STORE"] == "redis://mine"
    assert "every 10 minutes" in text
    assert "heroku config:set POLLCONSUMER_CONSUMER__IDLE_TIME=… POLLCONSUMER_STORE=…" in text


def test_in_the_place_of_an_embedded_store_herokus_script_takes_the_add_on_of_the_moment(printed: Path) -> None:
    (printed / "heroku.sh").write_text(only("heroku", shop(printed, store="embedded", environment={})))
    given = outcome(["sh", "heroku.sh"], printed, REDIS_URL="rediss://:new@h:1")[1]
    assert given["POLLCONSUMER_STORE"] == "rediss://:new@h:1?ssl_cert_reqs=none"
    given = outcome(["sh", "heroku.sh"], printed, REDIS_URL="rediss://h", POLLCONSUMER_STORE="redis://mine")[1]
    assert given["POLLCONSUMER_STORE"] == "redis://mine"
    bare = {"PATH": os.environ["PATH"]}
    refused = subprocess.run(["sh", "heroku.sh"], cwd=printed, env=bare, capture_output=True, check=False)
    assert (refused.returncode, b"heroku addons:create" in refused.stderr) == (2, True)


def test_launchd_runs_this_configuration_with_what_its_environment_file_says(printed: Path) -> None:
    place = printed / "a b&c<d'e"
    place.mkdir()
    (place / "bin").symlink_to(printed / "bin")
    files = PLATFORMS["launchd"](shop(place))
    for file in files:
        (place / file.name).write_text(file.text)
    assert [file.name for file in files] == ["local.shop.plist", "pollconsumer.env"]
    found = plistlib.loads(files[0].text.encode())
    assert (found["Label"], found["ExitTimeOut"], found["Umask"]) == ("local.shop", 115, 0o077)
    assert found["StandardErrorPath"] == f"{place}/local.shop.log"
    assert "hunter2" not in files[0].text
    arguments, environment = outcome(found["ProgramArguments"], printed)
    told = ["--config", f"{place}/settings.toml", "--schedule", "*/2 * * * *"]
    assert arguments == ["run", *told, "--handoff", "deadline", "--launcher", "drop"]
    assert environment["POLLCONSUMER_STORE"] == URL


def test_launchd_runs_a_configuration_alone_without_a_shell_and_with_its_store(printed: Path) -> None:
    [file] = PLATFORMS["launchd"](shop(printed, store="embedded", environment={}, data_home=printed / "data"))
    words = plistlib.loads(file.text.encode())["ProgramArguments"]
    assert words[:2] == ["/usr/bin/env", f"XDG_DATA_HOME={printed}/data"]
    assert outcome(words, printed)[1]["XDG_DATA_HOME"] == f"{printed}/data"


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/15 9-17 * * MON-FRI", "0 0 13 * 5", "30 2 1,15 JAN *", "0 */6 * * 7"]
)
def test_launchd_is_told_the_instants_at_which_cron_launches(schedule: str) -> None:
    entries = calendar.for_launchd(schedule)

    named = {
        tuple(entry): {tuple(each.values()) for each in entries if each.keys() == entry.keys()} for entry in entries
    }

    def launches(at: datetime) -> bool:
        now = {"Minute": at.minute, "Hour": at.hour, "Day": at.day, "Month": at.month, "Weekday": at.isoweekday() % 7}
        return any(tuple(now[key] for key in keys) in values for keys, values in named.items())

    begin = datetime(2026, 1, 1, tzinfo=UTC)
    minutes = [begin + timedelta(minutes=n) for n in range(20_160)]
    milliseconds = [int(at.timestamp() * 1000) for at in minutes if launches(at)]
    before = int(begin.timestamp() * 1000) - 1
    expected = takewhile(lambda at: at <= int(minutes[-1].timestamp() * 1000), Cron(schedule).instants(before, UTC))
    assert milliseconds == [*expected]


@pytest.mark.parametrize(
    ("schedule", "expression"),
    [
        ("* * * * *", "cron(* * * * ? *)"),
        ("*/15 9-11 * * MON-FRI", "cron(0/15 9,10,11 ? * MON,TUE,WED,THU,FRI *)"),
        ("0 0 * * 7", "cron(0 0 ? * SUN *)"),
        ("5 4 1,15 JAN *", "cron(5 4 1,15 1 ? *)"),
    ],
)
def test_eventbridge_is_told_days_by_name_and_one_question_mark(schedule: str, expression: str) -> None:
    assert calendar.for_aws(schedule) == expression


def test_eventbridge_cannot_ask_for_either_day() -> None:
    with pytest.raises(ConfigurationError, match="day of month and day of week"):
        calendar.for_aws("0 0 13 * 5")


@pytest.mark.parametrize("schedule", ["0 0 1 * */2", "0 0 */10 * 1"])
@pytest.mark.parametrize("converted", [calendar.for_aws, calendar.for_launchd, calendar.with_sunday_0])
def test_platforms_that_cannot_ask_for_both_days_refuse_a_schedule_in_which_both_must_match(
    converted: Any, schedule: str
) -> None:
    with pytest.raises(ConfigurationError, match="cannot take both day of month and day of week"):
        converted(schedule)


def test_azure_and_systemd_ask_for_both_days() -> None:
    assert calendar.for_azure("0 0 1 * */2") == "0 0 0 1 * 0,2,4,6"
    assert calendar.for_systemd("0 0 1 * */2") == ["Sun,Tue,Thu,Sat *-*-1 0:0:00"]


@pytest.mark.parametrize(
    ("schedule", "interval"),
    [
        ("* * * * *", "*/10 * * * *"),
        ("*/30 * * * *", "*/10 * * * *"),
        ("7 * * * *", "0 * * * *"),
        ("0 9 * * 1", "0 0 * * *"),
    ],
)
def test_heroku_has_three_intervals(schedule: str, interval: str) -> None:
    assert calendar.for_heroku(schedule) == interval


@pytest.mark.parametrize("platform", ["github", "gitlab", "heroku", "render", "railway"])
def test_platforms_that_check_a_repository_out_name_paths_from_its_top(platform: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    text = only(platform, shop(tmp_path / "queue"))
    assert "pollconsumer run --config queue/settings.toml " in text
    assert str(tmp_path) not in text
    if platform in ("github", "gitlab", "render"):
        assert "pip install --requirement queue/requirements.txt" in text
    if platform == "heroku":
        assert "\n#   sh queue/heroku.sh\n" in text


def test_a_client_of_the_users_needs_no_variable_anywhere() -> None:
    settings = Settings(client="bring:client", directory=Path("/c"), config=Path("/c/config.toml"))
    found: dict[str, list[File]] = {
        platform: PLATFORMS[platform](Installation(settings, ("p",), "ada"))
        for platform in ("cloudrun", "ecs", "containerapps", "heroku", "render", "railway", "gitlab", "launchd")
    }
    assert not [name for name, files in found.items() for file in files if "POLLCONSUMER_STORE" in file.text]
    assert "envVars" not in read(found["render"][0].text)["services"][0]
    assert "secrets" not in read(found["ecs"][0].text)["containerDefinitions"][0]
    assert "secrets" not in read(found["containerapps"][0].text)["properties"]["configuration"]
