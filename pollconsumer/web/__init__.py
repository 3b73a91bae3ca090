"""Launches by a URL, for schedulers that can only call one, and messages by HTTP. Imported only where one is wanted."""

from __future__ import annotations

from pollconsumer.web.launch_endpoint import LaunchEndpoint

__all__ = ["LaunchEndpoint"]
