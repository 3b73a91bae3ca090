"""``pollconsumer check --compat``: what the server lacks."""

from __future__ import annotations

from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import print_json, print_lines
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.store.trial.server_trial import ServerTrial


def try_server(settings: Settings, *, as_json: bool) -> int:
    """Print what the server of the settings lacks, or ``ok``. Returns the exit code."""
    opener = opener_of(settings)
    wire, another = opener.keeper_wire(command_patience), opener.bare_wire(command_patience)
    with raising_terminations():
        found = ServerTrial(wire, another, settings.namespace).lacks()
    if as_json:
        print_json({"ok": not found, "lacks": [{"step": each.step, "problem": str(each.error)} for each in found]})
    else:
        print_lines([f"{each.step}: {each.error}" for each in found] or ["ok"])
    return max((each.exit_code for each in found), default=0)
