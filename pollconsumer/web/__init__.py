"""Launches by a URL, for schedulers that can only request one, and messages by HTTP. Imported only when needed."""

from __future__ import annotations

from pollconsumer.web.launch_endpoint import LaunchEndpoint

__all__ = ["LaunchEndpoint"]
