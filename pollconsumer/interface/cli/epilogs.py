"""What ``--help`` shows below the options: examples of each command, and, of all commands, the exit codes."""

from __future__ import annotations

EXIT_CODES = {
    "0": "success; every normal end of a launch",
    "1": "a bug in pollconsumer; of doctor: it found a problem",
    "2": "wrong usage",
    "65": "invalid data",
    "66": "no such message, queue, recurrence or batch",
    "69": "the store cannot be reached",
    "73": "a file, directory or socket cannot be created",
    "75": "the lease was lost while running",
    "77": "authentication failed, or permission denied",
    "78": "wrong configuration, failed import of handlers, or unsafe store",
    "124": "killed by the watchdog",
    "130, 143": "interrupted by SIGINT or SIGTERM; a launch: by the second one",
}
OF_PROGRAM = "\n".join(["\b", "Exit codes:", *(f"  {code:8}  {meaning}" for code, meaning in EXIT_CODES.items())])

SEE_ALL = "Exit codes: see 'pollconsumer --help'."


def below_options(examples: str | None) -> str:
    """The text below the options in a command's help, whose ``examples`` are a line each."""
    lines = (examples or "").splitlines()
    shown = ["Examples:" if len(lines) > 1 else "Example:", *(f"  {each}" for each in lines), ""] if lines else []
    return "\n".join(["\b", *shown, SEE_ALL])
