"""Hosts on a network of their own: network namespaces with an address each, and a switch between them.

They need the right to make them: root, CAP_SYS_ADMIN and CAP_NET_ADMIN.
"""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from itertools import count

SUBNET = "10.213.0"
NO_RIGHT = 77
"""The exit code of a trial that may not make hosts."""
_numbers = count(1)


class NotPermitted(Exception):
    """Network namespaces cannot be made here."""


class Network:
    """Several may be there at the same time: their addresses are the same, and nothing leads from one to another."""

    def __init__(self) -> None:
        """NotPermitted without the right to make one."""
        self.name = f"pc{os.getpid()}n{next(_numbers)}"
        self.hosts: list[Host] = []
        command("ip", "netns", "add", self.name)
        try:
            self.command("link", "add", "switch", "type", "bridge")
            self.command("link", "set", "switch", "up")
        except NotPermitted:
            self.remove()
            raise

    def command(self, *words: str) -> None:
        """``ip`` at the switch."""
        command("ip", "-n", self.name, *words)

    def remove(self) -> None:
        for host in self.hosts:
            host.kill()
            _delete(host.name)
        _delete(self.name)


class Host:
    """Of a network, which removes it. ``enter``: the words before a command that is to run there."""

    def __init__(self, network: Network) -> None:
        number = len(network.hosts) + 1
        self.name = f"{network.name}h{number}"
        self.address = f"{SUBNET}.{number}"
        self.enter = ("ip", "netns", "exec", self.name)
        own = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        self.enter_apart = (*self.enter, *own, "sh", "-c", 'hostname "$0" && exec "$@"', self.name)
        """Likewise, with a host name and process numbers of its own."""
        self._network, self._port = network, f"port{number}"
        command("ip", "netns", "add", self.name)
        network.hosts.append(self)
        network.command("link", "add", self._port, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        network.command("link", "set", self._port, "up")
        for line in (f"address add {self.address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            command("ip", "-n", self.name, *line.split())
        self.heal()

    def cut(self) -> None:
        """What is sent does not arrive, either way; nobody is told."""
        self._network.command("link", "set", self._port, "nomaster")

    def heal(self) -> None:
        self._network.command("link", "set", self._port, "master", "switch")

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)


def _delete(name: str) -> None:
    """The namespace, and its interfaces."""
    with suppress(NotPermitted):
        command("ip", "netns", "delete", name)


def command(*words: str) -> None:
    """NotPermitted if it fails."""
    try:
        subprocess.run(words, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NotPermitted(f"there is no {words[0]}: install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise NotPermitted(f"{' '.join(words)}: {error.stderr.strip()}") from None
