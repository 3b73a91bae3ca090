"""A Kubernetes CronJob, and the Secret with its variables."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import with_sunday_0
from pollconsumer.platform_files.file_text import flow, quoted, render
from pollconsumer.platform_files.installation import PRIVATE, File, Installation, refuse_local_store

PROGRAM, DIRECTORY = "/opt/pollconsumer/bin/pollconsumer", "/app"
"""Places in the image of ``docker.py``."""


def files(installation: Installation) -> list[File]:
    refuse_local_store(installation.settings)
    # A pod takes 2 to 30 s to start: baton hides it.
    command = installation.run_at(PROGRAM, DIRECTORY, "--handoff", "baton", "--launcher", "parallel")
    job = pod(installation, command)
    schedule = quoted(with_sunday_0(installation.schedule))
    return [
        secret(installation, installation.remote_environment),
        File("cronjob.yaml", render("cronjob.yaml", name=installation.name, schedule=schedule, job=job)),
    ]


def secret(installation: Installation, data: dict[str, str]) -> File:
    entries = "\n".join(f"{key}: {quoted(value)}" for key, value in sorted(data.items()))
    return File("secret.yaml", render("secret.yaml", name=installation.name, data=entries), PRIVATE)


def pod(installation: Installation, command: tuple[str, ...]) -> str:
    """The specification of a Job."""
    return render(
        "pod.yaml",
        name=installation.name,
        image=quoted(installation.image_name),
        command=flow(command),
        environment="\n".join(_variable(installation.name, each) for each in sorted(installation.remote_environment)),
        active_deadline=installation.longest_run,
        stop_grace=installation.stop_grace,
        memory=installation.memory_mib,
    )


def _variable(secret: str, name: str) -> str:
    reference = f"valueFrom:\n    secretKeyRef:\n      name: {secret}\n      key: {name}"
    return f"- name: {name}\n  {reference}"
