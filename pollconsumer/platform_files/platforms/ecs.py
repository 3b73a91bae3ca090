"""A task of ECS on Fargate, and the schedule of EventBridge that starts it. Its variables are parameters of SSM."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import for_aws
from pollconsumer.platform_files.file_text import flow, keyed, quoted, render
from pollconsumer.platform_files.installation import File, Installation, refuse_local_store
from pollconsumer.platform_files.platforms.kubernetes import DIRECTORY, PROGRAM

LONGEST_GRACE = 120
"""Seconds from SIGTERM to SIGKILL: Fargate grants no more."""
LEAST_MEMORY, MOST_MEMORY, STEP = 512, 8192, 1024
"""MiB that a task may have, in steps from the second on; with a quarter of a processor, up to 2048."""


def files(installation: Installation) -> list[File]:
    refuse_local_store(installation.settings)
    name = installation.name
    parameters = {variable: f"/{name}/{variable}" for variable in sorted(installation.remote_environment)}
    memory = _memory(installation.memory_mib)
    # A task takes half a minute to start: baton hides it.
    command = installation.run_at(PROGRAM, DIRECTORY, "--handoff", "baton", "--launcher", "parallel")
    task = render(
        "ecs-task.yaml",
        name=name,
        put="\n".join(
            f'#   aws ssm put-parameter --type SecureString --name {parameter} --value "${variable}"'
            for variable, parameter in parameters.items()
        ),
        image=quoted(installation.image_name),
        command=flow(command[1:]),
        entry_point=flow(command[:1]),
        secrets=keyed("secrets", (f"- name: {each}\n  valueFrom: {path}" for each, path in parameters.items())),
        stop_timeout=min(LONGEST_GRACE, installation.stop_grace),
        cpu=256 if memory <= 2 * STEP else 1024,
        memory=memory,
    )
    schedule = render("ecs-schedule.yaml", name=name, expression=quoted(for_aws(installation.schedule)))
    return [File("ecs-task.yaml", task), File("ecs-schedule.yaml", schedule)]


def _memory(least: int) -> int:
    return LEAST_MEMORY if least <= LEAST_MEMORY else min(MOST_MEMORY, -(-least // STEP) * STEP)
