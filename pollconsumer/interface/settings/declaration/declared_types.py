"""Types of declared settings. The functions that read and check them are found by their names in launches."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Strict

from pollconsumer.core.notation.text import check_address
from pollconsumer.core.spans import parse_quota, parse_rate
from pollconsumer.interface.settings import values


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """A validator that refuses what ``check`` raises a ValueError for."""

    @wraps(check)
    def keep(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(keep)


_READ_PERIOD = BeforeValidator(values.read_period, json_schema_input_type=float | str)

Switch = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Duration = Annotated[float, BeforeValidator(values.read_duration, json_schema_input_type=float | str)]
"""Seconds, written as a number or with units."""
Period = Annotated[str, _READ_PERIOD]
"""A period as text; it may be written as a number of seconds, too."""
Memory = Annotated[int, BeforeValidator(values.read_memory, json_schema_input_type=int | str)]
"""Bytes, written as a number or with a unit."""
Name = Annotated[str, checked(values.check_name)]
Cron = Annotated[str, checked(values.check_cron)]
Rate = Annotated[str, checked(parse_rate)]
Keep = Annotated[str, checked(values.parse_keep)]
Place = Annotated[str, checked(values.check_directory)]
Token = Annotated[str, checked(values.check_token)]
MonitorUrl = Annotated[str, checked(check_address)]
Linger = Annotated[str, _READ_PERIOD, checked(values.check_linger)]
"""A period as text, or the word for all the time that there is."""
OnDemand = Annotated[str, checked(values.check_on_demand)]
LogTarget = Annotated[str, checked(values.check_log_target)]
Quota = Annotated[str, checked(parse_quota)]
MemberName = Annotated[str, checked(values.check_member)]
VariableName = Annotated[str, checked(values.check_variable)]
Named = Annotated[str, checked(values.check_named)]
"""An object in a module of the user's, written ``module:object``."""
StoreUrl = Annotated[str, checked(values.check_store)]
SharedDirectory = Annotated[str, checked(values.check_shared_directory)]
ServerProgram = Annotated[str, checked(values.check_program)]
StateDirectory = Annotated[str, checked(values.check_state)]
Argv = Annotated[tuple[Annotated[str, checked(values.check_argument)], ...], BeforeValidator(values.read_argv)]
ExitCodes = Annotated[tuple[int, ...], BeforeValidator(values.read_exit_codes)]
