"""Imports of the user's code, whose failures are configuration errors in one line."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pollconsumer.core.errors import ConfigurationError, PollConsumerError, shown
from pollconsumer.runtime.handling.outcome import describe, text_of
from pollconsumer.runtime.handling.stray_forks import end_stray

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def importing(setting: str, module: str) -> Iterator[None]:
    """Around an import of ``module``, which ``setting`` names. ConfigurationError for what it raises; a process that
    it forked ends here."""
    pid = os.getpid()
    try:
        with _refusing(setting, module):
            yield
    except BaseException as error:
        end_stray(pid, error)
        raise
    end_stray(pid, None)


@contextmanager
def _refusing(setting: str, module: str) -> Iterator[None]:
    try:
        yield
    except ConfigurationError:
        raise
    except PollConsumerError as error:
        raise ConfigurationError(f"{setting}: {module}: {error}") from None
    except SystemExit:
        raise ConfigurationError(setting, module, "the module exits when it is imported") from None
    except ModuleNotFoundError as error:
        reason = f"{shown(text_of(error))}; is it in the configuration file's directory?"
        raise ConfigurationError(setting, module, reason) from None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            raise  # Ctrl-C; launches handle signals differently
        raise ConfigurationError(setting, module, f"importing it raised {shown(describe(error))}") from None
