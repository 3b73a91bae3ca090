"""A site's programs find its configuration in BASE_DIR, or beside its settings module, wherever they are started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
READS = """
from pollconsumer.django.site import application
from pollconsumer.interface.api.app import calls_of

settings = calls_of(application()).settings()
print(settings.namespace, settings.config, settings.nowhere)
"""


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("from pathlib import Path\nBASE_DIR = Path(__file__).parents[1]\n", "config.toml"),
        ("BASE_DIR = __file__.rpartition('/')[0] + '/..'\n", "config.toml"),
        ("", "website/config.toml"),
    ],
    ids=["BASE_DIR", "BASE_DIR, as text", "beside the settings module"],
)
def test_the_configuration_of_a_site_is_found_from_another_directory(tmp_path: Path, written: str, file: str) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    (site / "website").mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text('namespace = "elsewhere"\n')
    (site / "website" / "settings.py").write_text(f"{written}INSTALLED_APPS = []\n")
    (site / file).write_text('namespace = "website"\n')
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POLLCONSUMER_")}
    environment |= {"PYTHONPATH": f"{site}:{REPOSITORY}", "DJANGO_SETTINGS_MODULE": "website.settings"}
    command = [sys.executable, "-c", READS]
    read = subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False)
    namespace, config, nowhere = read.stdout.split() or [read.stderr, "", ""]
    assert (namespace, nowhere) == ("website", "None")
    assert (site / file).samefile(config)
