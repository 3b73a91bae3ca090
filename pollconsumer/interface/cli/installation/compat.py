"""``pollconsumer check --compat``: what the server lacks."""

from __future__ import annotations

from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import print_lines, printed_as_json
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.store.trial.server_trial import ServerTrial


def try_server(settings: Settings) -> int:
    """Print what the server of the settings lacks, or ``ok``. Returns the exit code."""
    opener = opener_of(settings)
    wire, another = opener.keeper_wire(command_patience), opener.bare_wire(command_patience)
    with raising_terminations():
        found = ServerTrial(wire, another, settings.namespace).lacks()
    lacks = [{"step": each.step, "problem": str(each.error)} for each in found]
    if not printed_as_json({"ok": not found, "lacks": lacks}):
        print_lines([f"{each.step}: {each.error}" for each in found] or ["ok"])
    return max((each.exit_code for each in found), default=0)
