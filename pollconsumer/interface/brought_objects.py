"""Imports a client of the store, or a provider of its credentials, that settings name in the user's modules."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from inspect import iscoroutine
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.user_imports import find_modules, importing, made_by
from pollconsumer.store.brought_client import BroughtClient
from pollconsumer.store.client.address import CredentialProvider


def client_of(settings: Settings) -> BroughtClient:
    """The client that the named function returns. ConfigurationError for anything else."""
    from pollconsumer.store.brought_client import brought  # slow: it imports redis-py, which credentials do not need

    name = str(settings.client)
    function = _found(settings, "client", name)
    if not callable(function):
        fix = "name a function that returns a redis-py client"
        raise ConfigurationError(f"client: {name}", f"a {type(function).__name__}", fix)
    return brought(_made("client", name, function), f"client: {name}")


def credentials_of(settings: Settings) -> CredentialProvider:
    """The named provider, or the one that a named class or function makes. ConfigurationError for anything else."""
    name = str(settings.credentials)
    provider = _found(settings, "credentials", name)
    if callable(provider) and (isinstance(provider, type) or not hasattr(provider, "get_credentials")):
        provider = _made("credentials", name, provider)
    if not callable(getattr(provider, "get_credentials", None)):
        fix = "name a redis-py CredentialProvider, or what makes one"
        raise ConfigurationError(f"credentials: {name}", f"a {type(provider).__name__}", fix)
    found: CredentialProvider = provider
    return found


def _made(setting: str, name: str, function: Callable[[], Any]) -> Any:
    """What the function ``name`` returns. ConfigurationError if it raises, or is a coroutine function."""
    made = made_by(setting, name, function)
    if iscoroutine(made):
        made.close()  # else Python would warn that nobody awaited it
        raise ConfigurationError(f"{setting}: {name}", "a coroutine function", "name a plain one")
    return made


def _found(settings: Settings, setting: str, name: str) -> Any:
    """The object ``name``, written ``module:object``. ConfigurationError if the module cannot be imported, or does not
    have it."""
    module, _, attribute = name.partition(":")
    find_modules(settings, [module])
    with importing(setting, module):
        imported = import_module(module)
    if not hasattr(imported, attribute):
        raise ConfigurationError(setting, name, f"{module} has no {attribute}")
    return getattr(imported, attribute)
