"""Installations under faults, and a checker of what they did.

``handlers`` and ``program`` record every execution; ``producer`` records what it asked for and what it was answered;
``storm`` runs an installation (``installation``, ``server``, ``proxy``, ``platform``) while ``nemesis`` harms it, heals
it, drains it, and hands the ``history`` to the invariants. ``mixed`` and ``volume`` are the long forms, ``mutations``
takes the store's guards out one by one and says what notices.
"""
