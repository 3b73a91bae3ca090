"""Logins that change while a program runs: tokens of Entra ID or IAM, passwords from a vault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.redaction import redacted


class CredentialProvider(Protocol):
    """redis-py's: whatever has this method."""

    def get_credentials(self) -> Sequence[str]:
        """User and password, or a password alone."""


def asked_of(provider: CredentialProvider) -> Sequence[str]:
    """The login that ``provider`` gives now. ConnectionError if it fails: tokens come over a network, so another try
    may help; ConfigurationError for what is no login, of which nothing is shown."""
    try:
        given = provider.get_credentials()
    except Exception as error:
        problem = redacted(f"get_credentials raised {type(error).__name__}: {error}")
        raise ConnectionError(f"credentials: {problem}") from None
    is_login = isinstance(given, tuple | list) and len(given) in (1, 2) and all(isinstance(each, str) for each in given)
    if not is_login:
        fix = "get_credentials must return (user, password) or (password,)"
        raise ConfigurationError("credentials", f"a {type(given).__name__}", fix)
    return given
