"""The version, and the names of environment variables."""

from __future__ import annotations

VERSION = "1.0.0"
PREFIX = "POLLCONSUMER_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
OUTCOME_VARIABLE = f"_{PREFIX}OUTCOME"
"""No setting: the descriptor of a request that has started a launch and waits for its outcome."""
NO_STATE = "none"


def variable(path: str) -> str:
    """The environment variable of the setting at ``path``, such as ``consumer.timeout``."""
    return PREFIX + path.replace(".", "__").upper()
