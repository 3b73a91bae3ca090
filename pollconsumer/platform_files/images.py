"""Files of platforms that run a container image for each launch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.names import ENVIRONMENT_FILE
from pollconsumer.platform_files.calendar import for_aws, with_sunday_0
from pollconsumer.platform_files.files import EXECUTABLE, PRIVATE, File, crontab, keyed, quoted, render
from pollconsumer.platform_files.installation import STORE, Installation, environment_text, refuse_local_store
from pollconsumer.store.client.address import SentinelService, address_of, server_urls, service_of
from pollconsumer.store.keyspace import Keys

PROGRAM, DIRECTORY = "/opt/pollconsumer/bin/pollconsumer", "/app"
"""Paths in the image of `docker_files`."""
BATON = ("--handoff", "baton", "--launcher", "parallel")
"""Options for containers, which may take 30 seconds to start. With ``baton`` the previous launch works meanwhile."""
READY = ("ready", "ready_by_priority")
"""Keys whose lengths add up to the number of a queue's ready messages. docs/reference/keda.md promises them."""
SENTINEL, CLUSTER = "redis+sentinel:", "redis+cluster:"
SCHEDULE = "*/5 * * * *"
"""The schedule of KEDA's second trigger. consumer.schedule means ticks, which KEDA does not have."""
REQUIREMENTS = "requirements.txt"
"""The file with the image's packages. It is written if missing: without it the first build would fail."""
LONGEST_GRACE = 120
"""Seconds from SIGTERM to SIGKILL: the most that Fargate grants."""
LEAST_MEMORY, MOST_MEMORY, STEP = 512, 8192, 1024
"""MiB that a task of ECS may have: the least, the most, and the step in between. A quarter of a processor allows up to
2048. Cloud Run has the same least."""
STEP_OF_APPS = 512
"""MiB in Container Apps for each quarter of a processor."""
RESOURCES = "/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers"
IDENTITY = f"{RESOURCES}/Microsoft.ManagedIdentity/userAssignedIdentities/IDENTITY"


def kubernetes_files(installation: Installation) -> list[File]:
    """A CronJob, and the Secret that has its variables."""
    job = pod(installation, _baton(installation))
    schedule = quoted(with_sunday_0(installation.schedule))
    return [
        secret(installation, installation.remote_environment),
        File("cronjob.yaml", installation.render("cronjob.yaml", schedule=schedule, job=job)),
    ]


def _baton(installation: Installation) -> tuple[str, ...]:
    """The command of a launch in an image. ConfigurationError if only this machine can reach the store."""
    refuse_local_store(installation.settings)
    return installation.run_at(PROGRAM, DIRECTORY, *BATON)


def secret(installation: Installation, data: dict[str, str]) -> File:
    entries = "\n".join(f"{key}: {quoted(value)}" for key, value in sorted(data.items()))
    return File("secret.yaml", installation.render("secret.yaml", data=entries), PRIVATE)


def pod(installation: Installation, command: tuple[str, ...]) -> str:
    """The ``spec`` of a Job."""
    return installation.render(
        "pod.yaml",
        command=quoted(command),
        environment="\n".join(
            f"- name: {each}\n  valueFrom:\n    secretKeyRef:\n      name: {installation.name}\n      key: {each}"
            for each in installation.remote_environment
        ),
    )


def keda_files(installation: Installation) -> list[File]:
    """A ScaledJob, which starts launches when messages are ready."""
    refuse_local_store(installation.settings)
    if installation.settings.client is not None:
        fix = "KEDA reads the store itself: name its URL, as in pollconsumer --store redis://… init keda"
        raise ConfigurationError("client", installation.settings.client, fix)
    credentials = {f"redis-{name}": value for name, value in _credentials(installation.settings.store).items()}
    command = installation.run_at(
        PROGRAM, DIRECTORY, "--until-empty", "--linger", "30s", "--launcher", "queue", schedule=SCHEDULE
    )
    text = installation.render(
        "scaledjob.yaml",
        instances=installation.settings.consumer.instances,
        authentication=_authentication(installation.name, credentials) if credentials else "",
        triggers="".join(_triggers(installation, authenticated=bool(credentials))),
        job=pod(installation, command),
    )
    return [secret(installation, installation.remote_environment | credentials), File("scaledjob.yaml", text)]


def _addresses(store: str) -> SentinelService:
    """KEDA's addresses of the store, and the one that has the keys. The service's name is empty without a Sentinel."""
    if store.startswith(SENTINEL):
        return service_of(store)
    nodes = tuple(map(address_of, server_urls(store) if store.startswith(CLUSTER) else [store]))
    return SentinelService("", nodes, nodes[0])


def _credentials(store: str) -> dict[str, str]:
    name, (first, *_), primary = _addresses(store)
    found = {"username": primary.user, "password": primary.password}
    if name:
        found |= {"sentinelUsername": first.user, "sentinelPassword": first.password}
    return {name: value for name, value in found.items() if value}


def _store_trigger(store: str) -> tuple[str, dict[str, str]]:
    """The KEDA trigger for ``store``: its type, and its metadata."""
    name, nodes, primary = _addresses(store)
    addresses = ",".join(
        f"[{each.host}]:{each.port}" if ":" in each.host else f"{each.host}:{each.port}" for each in nodes
    )
    database = {"databaseIndex": str(primary.database)}
    tls = {"enableTLS": "true" if primary.tls is not None else "false"}
    if name:
        return "redis-sentinel", {"addresses": addresses, "sentinelMaster": name} | database | tls
    if store.startswith(CLUSTER):
        return "redis-cluster", {"addresses": addresses} | tls
    return "redis", {"address": addresses} | database | tls


def _authentication(name: str, credentials: dict[str, str]) -> str:
    targets = (f"- parameter: {each.removeprefix('redis-')}\n  name: {name}\n  key: {each}" for each in credentials)
    return render("scaledjob.authentication", name=name, targets="\n".join(targets))


def _triggers(installation: Installation, *, authenticated: bool) -> Iterator[str]:
    settings = installation.settings
    (kind, target), keys = _store_trigger(settings.store), Keys(settings.namespace)
    authentication = f"authenticationRef:\n  name: {installation.name}" if authenticated else ""
    for queue in installation.queues:
        for key in READY:
            metadata = target | {"listName": keys.queue(queue, key), "listLength": "1"}
            lines = "\n".join(f"{name}: {quoted(value)}" for name, value in metadata.items())
            yield render("scaledjob.trigger", kind=kind, metadata=lines, authentication=authentication)


def docker_files(installation: Installation) -> list[File]:
    """An image, and a crontab for the machine that runs it. Each launch is a container."""
    name = installation.name
    paths = (str(installation.target / "Dockerfile"), str(installation.settings.directory))
    build = shlex.join(["docker", "build", "--tag", installation.image or name, "--file", *paths])
    image, label, store = map(shlex.quote, (installation.image or name, name, f"{name}-store"))
    variables = installation.remote_environment
    embedded = installation.settings.is_embedded
    if embedded:
        variables |= {STORE: f"redis://{store}:6379/0"}
    command = installation.run_at(PROGRAM, DIRECTORY, *BATON)
    dockerfile = render("Dockerfile", build=build, entrypoint=quoted(command[:1]), command=quoted(command[1:]))
    launch = installation.render(
        "launch.sh",
        label=label,
        environment_file=shlex.quote(str(installation.environment_file)),
        network=f"--network {name} \\" if embedded else "",
        image=image,
    )
    table = installation.render(
        "docker.crontab",
        build=build,
        label=label,
        schedule=installation.schedule,
        launch=crontab([str(installation.target / "launch.sh")]),
    )
    found = [
        File("Dockerfile", dockerfile),
        File(".dockerignore", render("dockerignore", environment_file=ENVIRONMENT_FILE)),
        File("launch.sh", launch, EXECUTABLE),
        File("crontab", table),
        File(ENVIRONMENT_FILE, environment_text(variables, quoted=False), PRIVATE),
    ]
    if not (installation.settings.directory / REQUIREMENTS).exists():
        found.append(File(REQUIREMENTS, "pollconsumer\n"))
    if embedded:
        found.append(File("store.sh", render("store.sh", network=name, store=store), EXECUTABLE))
    return found


def cloudrun_files(installation: Installation) -> list[File]:
    """A job of Cloud Run, which Cloud Scheduler starts. Its variables are secrets of Secret Manager."""
    command, secrets = _baton(installation), installation.secret_names
    text = installation.render(
        "cloudrun.yaml",
        schedule=quoted(with_sunday_0(installation.schedule)),
        create="\n".join(
            f'#   printf %s "${variable}" | gcloud secrets create {name} --data-file=-'
            for variable, name in secrets.items()
        ),
        command=quoted(command),
        environment="\n".join(
            f"- name: {variable}\n  valueFrom:\n    secretKeyRef:\n      name: {name}\n      key: latest"
            for variable, name in secrets.items()
        ),
        memory=max(LEAST_MEMORY, installation.memory_mib),
    )
    return [File("cloudrun.yaml", text)]


def ecs_files(installation: Installation) -> list[File]:
    """A task on Fargate, and the schedule of EventBridge that starts it. Its variables are parameters of SSM."""
    name, command = installation.name, _baton(installation)
    parameters = {variable: f"/{name}/{variable}" for variable in installation.remote_environment}
    least = installation.memory_mib
    memory = LEAST_MEMORY if least <= LEAST_MEMORY else min(MOST_MEMORY, -(-least // STEP) * STEP)
    task = installation.render(
        "ecs-task.yaml",
        put="\n".join(
            f'#   aws ssm put-parameter --type SecureString --name {parameter} --value "${variable}"'
            for variable, parameter in parameters.items()
        ),
        command=quoted(command[1:]),
        entry_point=quoted(command[:1]),
        secrets=keyed("secrets", (f"- name: {each}\n  valueFrom: {path}" for each, path in parameters.items())),
        stop_timeout=min(LONGEST_GRACE, installation.stop_grace),
        cpu=256 if memory <= 2 * STEP else 1024,
        memory=memory,
    )
    schedule = installation.render("ecs-schedule.yaml", expression=quoted(for_aws(installation.schedule)))
    return [File("ecs-task.yaml", task), File("ecs-schedule.yaml", schedule)]


def containerapps_files(installation: Installation) -> list[File]:
    """A scheduled job of Azure Container Apps. Its variables are secrets of a Key Vault."""
    command, secrets = _baton(installation), installation.secret_names
    quarters = -(-installation.memory_mib // STEP_OF_APPS)
    text = installation.render(
        "containerapp.yaml",
        resources=RESOURCES,
        identity=IDENTITY,
        put="\n".join(
            f'#   az keyvault secret set --vault-name VAULT --name {name} --value "${variable}"'
            for variable, name in secrets.items()
        ),
        schedule=quoted(with_sunday_0(installation.schedule)),
        secrets=keyed(
            "secrets",
            (
                f"- name: {name}\n  keyVaultUrl: https://VAULT.vault.azure.net/secrets/{name}\n  identity: {IDENTITY}"
                for name in secrets.values()
            ),
        ),
        command=quoted(command),
        environment="\n".join(f"- name: {variable}\n  secretRef: {name}" for variable, name in secrets.items()),
        cpu=quarters / 4,
        memory=quarters / 2,
    )
    return [File("containerapp.yaml", text)]
