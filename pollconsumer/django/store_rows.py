"""What the store has, where the admin of Django expects a query to a database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.admin.views.main import ChangeList


class StoreRows:
    """Objects that were read, with as much of a QuerySet as the admin's list and its actions use."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        self._objects = list(objects)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def __getitem__(self, which: Any) -> Any:
        return self._objects[which]

    def count(self) -> int:
        return len(self)

    def filter(self, *, pk__in: Iterable[str]) -> StoreRows:
        """Return the rows with these keys: an action asks so for what was marked."""
        wanted = set(pk__in)
        return StoreRows(each for each in self if each.pk in wanted)

    def _clone(self) -> StoreRows:
        return self


class StoreChangeList(ChangeList):  # type: ignore[misc]  # Django has no types
    """A page of the admin's list: what `rows` of its ModelAdmin reads for the filters that are chosen."""

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> StoreRows:
        del exclude_parameters  # of facets, which count rows of a table
        self.filter_specs, self.has_filters, left, _, self.has_active_filters = self.get_filters(request)
        self.clear_all_filters_qs = self.get_query_string(new_params=left, remove=self.get_filters_params())
        chosen = {each.parameter_name: each.value() for each in self.filter_specs}
        return StoreRows(self.model_admin.rows(self.query.strip(), **chosen))
