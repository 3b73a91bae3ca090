"""The version, and the names of environment variables."""

from __future__ import annotations

VERSION = "1.0.0"
PREFIX = "POLLCONSUMER_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
OUTCOME_VARIABLE = f"_{PREFIX}OUTCOME"
"""No setting. It holds the descriptor on which the request that started the launch awaits the launch's outcome."""
OVERRIDING_VARIABLE = f"_{PREFIX}OVERRIDING"
"""No setting. If a producer sets it for a launch, the store of the environment counts as that of the flag ``--store``,
which no command line may show."""
ENVIRONMENT_FILE = "pollconsumer.env"
"""Beside the configuration file: variables that ``init`` writes for launches."""
NO_STATE = "none"


def variable(path: str) -> str:
    """The environment variable of the setting at ``path``, such as ``consumer.timeout``."""
    return PREFIX + path.replace(".", "__").upper()
