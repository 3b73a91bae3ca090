"""``python -m monitor put NAME``: add a check, or change it. ``pollconsumer recurrences`` does all else."""

from __future__ import annotations

import argparse
import getpass

from pollconsumer import PollConsumer, PollConsumerError

from .checks import KINDS, Check, put


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m monitor")
    commands = parser.add_subparsers(required=True, metavar="put")
    adding = commands.add_parser("put", help="Add a check, or change it.")
    adding.add_argument("name")
    adding.add_argument("--kind", choices=KINDS, required=True)
    adding.add_argument("--target", required=True, help="URL, or the database's file or address.")
    adding.add_argument("--every", required=True, help="Its period, as in 90s or 1h.")
    adding.add_argument("--query", default="", help="SQL whose first column is looked at.")
    adding.add_argument("--expect", default="", help="Text of the page, or that column.")
    adding.add_argument("--timeout", type=float, default=10.0, help="Seconds.")
    adding.add_argument("--notify", default="", help="Addresses, separated by commas.")
    given = vars(parser.parse_args())
    every = given.pop("every")
    try:
        put(PollConsumer(), Check(**given), every, getpass.getuser())
    except (ValueError, PollConsumerError) as error:
        parser.exit(65, f"{parser.prog}: {error}\n")


main()
