"""An image, and a crontab of the machine that runs it: a container for each launch."""

from __future__ import annotations

from pollconsumer.platform_files.file_text import crontab, flow, render, shell
from pollconsumer.platform_files.installation import (
    ENVIRONMENT_FILE,
    EXECUTABLE,
    PRIVATE,
    STORE,
    File,
    Installation,
    environment_text,
)
from pollconsumer.platform_files.platforms.kubernetes import DIRECTORY, PROGRAM

REQUIREMENTS = "requirements.txt"
"""The file of the image's packages: without one beside the configuration the image's first build would fail."""


def files(installation: Installation) -> list[File]:
    name = installation.name
    places = (str(installation.place / "Dockerfile"), str(installation.settings.directory))
    build = shell(["docker", "build", "--tag", installation.image or name, "--file", *places])
    image, label, store = (shell([each]) for each in (installation.image or name, name, f"{name}-store"))
    variables = installation.remote_environment
    embedded = installation.settings.is_embedded
    if embedded:
        variables |= {STORE: f"redis://{store}:6379/0"}
    command = installation.run_at(PROGRAM, DIRECTORY, "--handoff", "baton", "--launcher", "parallel")
    dockerfile = render(
        "Dockerfile",
        build=build,
        entrypoint=flow(command[:1]),
        command=flow(command[1:]),
    )
    launch = render(
        "launch.sh",
        label=label,
        environment_file=shell([str(installation.environment_file)]),
        network=f"--network {name} \\" if embedded else "",
        memory=installation.memory_mib,
        tasks=installation.tasks,
        stop_grace=installation.stop_grace,
        image=image,
    )
    table = render(
        "docker.crontab",
        build=build,
        label=label,
        mail_to=installation.user,
        schedule=installation.schedule,
        launch=crontab([str(installation.place / "launch.sh")]),
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
