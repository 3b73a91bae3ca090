"""A KEDA ScaledJob: launches when messages are ready."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import parse_qsl, unquote, urlsplit

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.platform_files.file_text import quoted, render
from pollconsumer.platform_files.installation import File, Installation, refuse_local_store
from pollconsumer.platform_files.platforms.kubernetes import DIRECTORY, PROGRAM, pod, secret
from pollconsumer.store.client.sentinel import service_of
from pollconsumer.store.cluster.cluster_address import server_urls
from pollconsumer.store.keyspace import Keys

READY = ("ready", "ready_by_priority")
"""Keys whose lengths add up to the ready messages of a queue: docs/reference/keda.md promises them."""
SENTINEL, CLUSTER = "redis+sentinel:", "redis+cluster:"
SCHEDULE = "*/5 * * * *"
"""The schedule of the second trigger; consumer.schedule is about ticks that KEDA does not have."""


def files(installation: Installation) -> list[File]:
    refuse_local_store(installation.settings)
    if installation.settings.client is not None:
        fix = "KEDA reads the store itself: name its URL, as in pollconsumer --store redis://… init keda"
        raise ConfigurationError("client", installation.settings.client, fix)
    credentials = {f"redis-{name}": value for name, value in _credentials(installation.settings.store).items()}
    command = installation.run_at(
        PROGRAM, DIRECTORY, "--until-empty", "--linger", "30s", "--launcher", "queue", schedule=SCHEDULE
    )
    text = render(
        "scaledjob.yaml",
        name=installation.name,
        instances=installation.settings.consumer.instances,
        authentication=_authentication(installation.name, credentials) if credentials else "",
        triggers="\n".join(_triggers(installation, authenticated=bool(credentials))),
        job=pod(installation, command),
    )
    return [secret(installation, installation.remote_environment | credentials), File("scaledjob.yaml", text)]


def _credentials(store: str) -> dict[str, str]:
    if store.startswith(SENTINEL):
        _, (sentinel, *_), primary = service_of(store)
        found = {"username": primary.user, "password": primary.password}
        found |= {"sentinelUsername": sentinel.user, "sentinelPassword": sentinel.password}
        return {name: value for name, value in found.items() if value}
    first = server_urls(store)[0] if store.startswith(CLUSTER) else store
    parts, options = urlsplit(first), dict(parse_qsl(urlsplit(first).query))
    in_place = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
    return {name: value for name, found in in_place.items() if (value := options.get(name) or found)}


def _place(store: str) -> tuple[str, dict[str, str]]:
    """Where the keys are: the type of a trigger, and its metadata."""
    if store.startswith(SENTINEL):
        name, sentinels, primary = service_of(store)
        return "redis-sentinel", {
            "addresses": ",".join(_address(each.host, each.port) for each in sentinels),
            "sentinelMaster": name,
            "databaseIndex": str(primary.database),
            "enableTLS": "true" if primary.tls is not None else "false",
        }
    if store.startswith(CLUSTER):
        nodes = [urlsplit(each) for each in server_urls(store)]
        return "redis-cluster", {
            "addresses": ",".join(_address(each.hostname or "localhost", each.port or 6379) for each in nodes),
            "enableTLS": "true" if nodes[0].scheme == "rediss" else "false",
        }
    parts, options = urlsplit(store), dict(parse_qsl(urlsplit(store).query))
    return "redis", {
        "address": _address(parts.hostname or "localhost", parts.port or 6379),
        "databaseIndex": options.get("db") or parts.path.removeprefix("/") or "0",
        "enableTLS": "true" if parts.scheme == "rediss" else "false",
    }


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _authentication(name: str, credentials: dict[str, str]) -> str:
    lines = ["apiVersion: keda.sh/v1alpha1", "kind: TriggerAuthentication", "metadata:", f"  name: {name}", "spec:"]
    lines.append("  secretTargetRef:")
    for key in credentials:
        lines += [f"    - parameter: {key.removeprefix('redis-')}", f"      name: {name}", f"      key: {key}"]
    return "\n".join([*lines, "---"])


def _triggers(installation: Installation, *, authenticated: bool) -> Iterator[str]:
    settings = installation.settings
    (kind, place), keys = _place(settings.store), Keys(settings.namespace)
    for queue in installation.queues:
        for key in READY:
            yield f"- type: {kind}"
            yield "  metadata:"
            for name, value in (place | {"listName": keys.queue(queue, key), "listLength": "1"}).items():
                yield f"    {name}: {quoted(value)}"
            if authenticated:
                yield "  authenticationRef:"
                yield f"    name: {installation.name}"
