"""Web pages about an installation: served by `dashboard` or within a site, or written as files. Imported on demand."""

from __future__ import annotations

from pollconsumer.dashboard.access import DashboardEndpoint, Visitor

__all__ = ["DashboardEndpoint", "Visitor"]
