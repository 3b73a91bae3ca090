"""Hosts: network namespaces, each with an address, a name and processes of its own, connected to this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

PERIOD = 3.0
"""Seconds between launches of a host."""
TIMEOUT = "6s"
NETWORK = "10.213"
MOST_LIVING = 3


class NotPermitted(Exception):
    """Network namespaces cannot be made here."""


class Host:
    """Starts a launch each PERIOD, as cron would. ``address`` is that at which it reaches this machine."""

    def __init__(self, number: int, directory: Path) -> None:
        self.name = f"pc{os.getpid()}h{number}"
        self.address = f"{NETWORK}.{number}.1"
        self._outer, self._inner = f"pcv{number}o{os.getpid()}"[:15], f"pcv{number}i{os.getpid()}"[:15]
        self._number, self._directory = number, directory
        self._over = threading.Event()
        self._still = False
        self._thread = threading.Thread(target=self._launch)
        self.launches: list[subprocess.Popen[str]] = []
        self.ended: list[tuple[int, str]] = []
        """Exit code, and what it said, of each."""
        self.make()

    def make(self) -> None:
        command("ip", "netns", "add", self.name)
        command("ip", "link", "add", self._outer, "type", "veth", "peer", "name", self._inner, "netns", self.name)
        command("ip", "address", "add", f"{self.address}/24", "dev", self._outer)
        command("ip", "link", "set", self._outer, "up")
        command("ip", "-n", self.name, "address", "add", f"{NETWORK}.{self._number}.2/24", "dev", self._inner)
        command("ip", "-n", self.name, "link", "set", self._inner, "up")
        command("ip", "-n", self.name, "link", "set", "lo", "up")

    def remove(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self.thaw()
            self._thread.join()
        self.kill()
        with suppress(NotPermitted):
            command("ip", "netns", "delete", self.name)  # and its interfaces

    def start(self, url: str) -> None:
        self._url = url
        self._thread.start()

    def cut(self) -> None:
        """What is sent does not arrive, either way; nobody is told."""
        command("ip", "link", "set", self._outer, "down")

    def heal(self) -> None:
        command("ip", "link", "set", self._outer, "up")
        self._still = False

    def freeze(self) -> None:
        self._still = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self._still = False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def vanish(self) -> None:
        """As when its power fails, until `heal`."""
        self.cut()
        self._still = True
        self.kill()

    def _signal(self, number: int) -> None:
        found = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False)
        for pid in found.stdout.split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), number)

    def _launch(self) -> None:
        environment = {
            "HOME": str(self._directory),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PARTITION_HOST": self.name,
            "POLLCONSUMER_STORE": self._url,
            "XDG_STATE_HOME": str(self._directory / self.name),
        }
        apart = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
        named = ["sh", "-c", 'hostname "$0" && exec "$@"', self.name]
        words = ["ip", "netns", "exec", self.name, *apart, *named, sys.executable, "-m", "pollconsumer", "-q", "run"]
        while True:
            living = [launch for launch in self.launches if launch.poll() is None]
            if not self._still and len(living) < MOST_LIVING:
                launch = subprocess.Popen(
                    [*words, "--timeout", TIMEOUT],
                    cwd=self._directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                self.launches.append(launch)
            if self._over.wait(PERIOD):
                break
        for launch in self.launches:
            _, said = launch.communicate()
            self.ended.append((launch.returncode, said))


def command(*words: str) -> None:
    """NotPermitted if it fails."""
    try:
        subprocess.run(words, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise NotPermitted(f"there is no {words[0]}: install iproute2") from None
    except subprocess.CalledProcessError as error:
        raise NotPermitted(f"{' '.join(words)}: {error.stderr.strip()}") from None
