"""Web pages about an installation: served by `dashboard`, served within a site, or written as files. Imported only
where they are used."""

from __future__ import annotations

from pollconsumer.dashboard.access import DashboardEndpoint, Visitor

__all__ = ["DashboardEndpoint", "Visitor"]
