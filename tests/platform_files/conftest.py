"""A command line in this process."""

from tests.interface.conftest import run

__all__ = ["run"]
