"""A table of names, each with two hosts that another process switches between by a counter.

For tests of what happens when a name comes to lead elsewhere, or nowhere. The table is a text such
as `service,10.0.0.1,10.0.0.2|other,alpha,beta`: a name and its two hosts, rows separated by `|`.
Each name has a counter of type 2001, whose value says how it resolves: `INITIAL_HOST`,
`RE_RESOLUTION_HOST`, or `NO_HOST`. With any other value it is looked up as it is.

Invariant: hosts and names that are not in the table are looked up as without it.

Source: Aeron `aeron_csv_table_name_resolver.c`, `RedirectingNameResolver`.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from aeron_async.errors import ConfigurationError, ErrorCode, RegistrationError

if TYPE_CHECKING:
    from aeron_async.counters import Counter, CountersManager
    from aeron_async.driver.core.outbox import Address

__all__ = ["CsvTableNameResolver", "parse_table"]

NAME_ENTRY_TYPE_ID: Final = 2001
NO_HOST: Final = -1
INITIAL_HOST: Final = 0
RE_RESOLUTION_HOST: Final = 1
COLUMN_COUNT: Final = 3
NAME_LENGTH_MAX: Final = 100
"""A longer name does not fit into the key of its counter."""
_LENGTH: Final = Struct("<i")


class Lookup(Protocol):
    """Looks up the hosts of the table, as `NameResolver.resolve` does."""

    async def __call__(self, host: str, port: int, /, *, is_re_resolution: bool = False) -> Address:
        """Return the numeric address of a host, and its port."""
        ...


@attrs.frozen(kw_only=True)
class Row:
    """One name of the table.

    Attributes:
        name: The name in channels.
        initial_host: What it stands for at first; a name or an address.
        re_resolution_host: What it can be made to stand for.
    """

    name: str
    initial_host: str
    re_resolution_host: str

    def __str__(self) -> str:
        return (
            f"NameEntry{{name='{self.name}', initialResolutionHost='{self.initial_host}', "
            f"reResolutionHost='{self.re_resolution_host}'}}"
        )


def parse_table(text: str) -> tuple[Row, ...]:
    """Return the rows of a table.

    Differs: the C driver leaves out rows that have not three columns.

    Raises:
        ConfigurationError: There is no row, or one has not three columns, or a name that is too
            long or in another row as well.
    """
    rows: dict[str, Row] = {}
    for line in filter(None, map(str.strip, text.split("|"))):
        columns = [each.strip() for each in line.split(",")]
        if len(columns) != COLUMN_COUNT or not all(columns):
            message = f"name_resolver_init_args has {line!r}: write a name and two hosts, by commas"
            raise ConfigurationError(message)
        row = Row(name=columns[0], initial_host=columns[1], re_resolution_host=columns[2])
        if len(row.name.encode()) > NAME_LENGTH_MAX:
            message = (
                f"the name {row.name!r} in name_resolver_init_args must have at most "
                f"{NAME_LENGTH_MAX} bytes"
            )
            raise ConfigurationError(message)
        if row.name in rows:
            message = f"name_resolver_init_args has the name {row.name!r} twice"
            raise ConfigurationError(message)
        rows[row.name] = row
    if not rows:
        message = "name_resolver_supplier=csv_table needs name_resolver_init_args: name,host,host|…"
        raise ConfigurationError(message)
    return tuple(rows.values())


class CsvTableNameResolver:
    """Resolves the names of a table as their counters say.

    Args:
        rows: The table.
        counters_manager: Gets a counter for each row.
        look_up: Looks up the hosts of the table, and all names that it has not.

    Raises:
        RegistrationError: There is no counter left.
    """

    def __init__(
        self, rows: tuple[Row, ...], counters_manager: CountersManager, look_up: Lookup
    ) -> None:
        self._look_up = look_up
        self._rows: dict[str, tuple[Row, Counter]] = {}
        for row in rows:
            name = row.name.encode()
            key = _LENGTH.pack(len(name)) + name
            self._rows[row.name] = row, counters_manager.allocate(NAME_ENTRY_TYPE_ID, key, str(row))

    async def resolve(self, host: str, port: int, *, is_re_resolution: bool = False) -> Address:
        """Return the address of the host that a name stands for now.

        Raises:
            RegistrationError: UNKNOWN_HOST; it stands for none, or the host has no address.
        """
        if host in self._rows:
            row, counter = self._rows[host]
            operation = counter.get()
            if operation == NO_HOST:
                message = f"Unable to resolve host=({host}): (forced)"
                raise RegistrationError(message, code=ErrorCode.UNKNOWN_HOST)
            if operation == INITIAL_HOST:
                host = row.initial_host
            elif operation == RE_RESOLUTION_HOST:
                host = row.re_resolution_host
        return await self._look_up(host, port, is_re_resolution=is_re_resolution)
