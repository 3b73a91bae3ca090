"""A scheduled job of Azure Container Apps. Its variables are secrets of a Key Vault."""

from __future__ import annotations

from pollconsumer.platform_files.calendar import with_sunday_0
from pollconsumer.platform_files.file_text import flow, keyed, quoted, render
from pollconsumer.platform_files.installation import File, Installation, refuse_local_store
from pollconsumer.platform_files.platforms.kubernetes import DIRECTORY, PROGRAM

RESOURCES = "/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers"
IDENTITY = f"{RESOURCES}/Microsoft.ManagedIdentity/userAssignedIdentities/IDENTITY"
STEP = 512
"""MiB that come with each quarter of a processor."""


def files(installation: Installation) -> list[File]:
    refuse_local_store(installation.settings)
    secrets = installation.secret_names
    quarters = -(-installation.memory_mib // STEP)
    # A replica takes seconds to start: baton hides it.
    command = installation.run_at(PROGRAM, DIRECTORY, "--handoff", "baton", "--launcher", "parallel")
    text = render(
        "containerapp.yaml",
        name=installation.name,
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
        image=quoted(installation.image_name),
        command=flow(command),
        environment="\n".join(f"- name: {variable}\n  secretRef: {name}" for variable, name in secrets.items()),
        longest=installation.longest_run,
        cpu=quarters / 4,
        memory=quarters / 2,
    )
    return [File("containerapp.yaml", text)]
