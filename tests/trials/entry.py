"""``python -m tests.trials.entry ARGUMENTS``: the command, with leases that lapse in a fifth of the time.

The proportions stay: a holder believes in its lease for less time than the server grants.
"""

from __future__ import annotations

from pollconsumer.__main__ import main  # first: from here on Ctrl-C prints no traceback
from pollconsumer.store import leases

leases.TTL, leases.RENEW_EVERY, leases.TRUSTED_FOR, leases.SUCCESSOR_TTL = 3.0, 1.0, 2.0, 1.0

if __name__ == "__main__":
    main()
