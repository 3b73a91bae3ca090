"""A job of Cloud Run, which Cloud Scheduler starts. Its variables are secrets of Secret Manager."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import with_sunday_0
from pollconsumer.platform_files.file_text import flow, quoted, render
from pollconsumer.platform_files.installation import File, Installation, refuse_local_store
from pollconsumer.platform_files.platforms.kubernetes import DIRECTORY, PROGRAM

LEAST_MEMORY = 512
"""MiB: no task has less."""


def files(installation: Installation) -> list[File]:
    refuse_local_store(installation.settings)
    secrets = installation.secret_names
    # A task takes seconds to start: baton hides it.
    command = installation.run_at(PROGRAM, DIRECTORY, "--handoff", "baton", "--launcher", "parallel")
    text = render(
        "cloudrun.yaml",
        name=installation.name,
        schedule=quoted(with_sunday_0(installation.schedule)),
        create="\n".join(
            f'#   printf %s "${variable}" | gcloud secrets create {name} --data-file=-'
            for variable, name in secrets.items()
        ),
        image=quoted(installation.image_name),
        command=flow(command),
        environment="\n".join(
            f"- name: {variable}\n  valueFrom:\n    secretKeyRef:\n      name: {name}\n      key: latest"
            for variable, name in secrets.items()
        ),
        longest=installation.longest_run,
        memory=max(LEAST_MEMORY, installation.memory_mib),
    )
    return [File("cloudrun.yaml", text)]
