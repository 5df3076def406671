"""Command `aeron-async stat`: the counters of any driver on this machine.

Source: Aeron `AeronStat`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import attrs
from cyclopts import Parameter

from aeron_async.cli.aeron_directories import Directory, Watch, facts_of, headline_of, show
from aeron_async.cli.options import (
    Flag,  # noqa: TC001 - cyclopts reads annotations at run time
    Int32,  # noqa: TC001 - as above
    Int64,  # noqa: TC001 - as above
)
from aeron_async.cli.output import print_json, print_line
from aeron_async.driver.core.stream_counters import StreamKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aeron_async.aeron_directory import AeronDirectory
    from aeron_async.counters import CounterRecord

__all__ = ["stat"]

VALUE_WIDTH = 26
"""Characters of a value, with separators: every 64-bit number fits, as in `AeronStat`."""


@attrs.frozen(kw_only=True)
class CounterFilter:
    """Which counters to show: those that match all that is given."""

    type_ids: tuple[int, ...] = ()
    registration_id: int | None = None
    stream_id: int | None = None
    session_id: int | None = None
    text: str = ""

    def none_found(self, every: Sequence[CounterRecord]) -> str:
        """Return the line that says what no counter has: one thing, or all that is asked for.

        Args:
            every: All counters of the driver.
        """
        types = {record.type_id for record in every}
        if missing := [str(each) for each in self.type_ids if each not in types]:
            return f"no counter has type {' or '.join(missing)}"
        for name, value, alone in (
            ("stream", self.stream_id, CounterFilter(stream_id=self.stream_id)),
            ("session", self.session_id, CounterFilter(session_id=self.session_id)),
            ("id", self.registration_id, CounterFilter(registration_id=self.registration_id)),
        ):
            if value is not None and not any(map(alone.matches, every)):
                return f"no counter has {name} {value}"
        return "no counter matches"

    def matches(self, record: CounterRecord) -> bool:
        """Return whether to show a counter."""
        if self.type_ids and record.type_id not in self.type_ids:
            return False
        if self.text not in record.label:
            return False
        key = StreamKey.decode(record)
        if self.stream_id is not None and (key is None or key.stream_id != self.stream_id):
            return False
        if self.session_id is not None and (key is None or key.session_id != self.session_id):
            return False
        # The C driver stores the registration id of a counter after it has shown the counter.
        found = record.registration_id if key is None else key.registration_id
        return self.registration_id in {None, found}


def stat(
    *,
    directory: Directory = None,
    type_ids: Annotated[tuple[Int32, ...], Parameter(name="--type")] = (),
    registration_id: Annotated[Int64 | None, Parameter(name="--id")] = None,
    stream: Annotated[Int32 | None, Parameter(name=("--stream", "-s"))] = None,
    session: Int32 | None = None,
    channel: str = "",
    json: Flag = False,
    watch: Watch | None = None,
) -> int:
    """Show the counters of a driver, ours or an official one.

    The files are opened for reading only. Several filters show what matches all of them. If nothing
    does, a line says so; the exit code is 0, because the driver was found.

    Args:
        directory: Aeron directory; by default AERON_DIR, or that of this user.
        type_ids: Only counters of these types, such as 4 for subscriber positions.
        registration_id: Only counters of this publication, image or subscription; for system
            counters, the one with this number.
        stream: Only counters of this stream.
        session: Only counters of this session.
        channel: Only counters whose label contains this text.
        json: One JSON object for each drawing.
        watch: How often to draw.
    """
    chosen = CounterFilter(
        type_ids=type_ids,
        registration_id=registration_id,
        stream_id=stream,
        session_id=session,
        text=channel,
    )

    def draw(found: AeronDirectory, now_ms: int) -> None:
        every = list(found.counter_records())
        records = [record for record in every if chosen.matches(record)]
        if json:
            counters = [_json_of(record) for record in records]
            print_json(facts_of(found, now_ms) | {"counters": counters})
        else:
            print_line(headline_of(found, now_ms))
            _print(records)
            if not records:
                print_line(chosen.none_found(every))

    return show(directory, draw, watch or Watch(), json=json)


def _print(records: list[CounterRecord]) -> None:
    width = max((len(str(record.counter_id)) for record in records), default=0)
    for record in records:
        print_line(f"{record.counter_id:{width}}: {record.value:>{VALUE_WIDTH},} - {record.label}")


def _json_of(record: CounterRecord) -> dict[str, object]:
    key = StreamKey.decode(record)
    return {
        "counter_id": record.counter_id,
        "type_id": record.type_id,
        "value": record.value,
        "registration_id": record.registration_id,
        "owner_id": record.owner_id,
        "reference_id": record.reference_id,
        "label": record.label,
        "stream": None if key is None else attrs.asdict(key),
    }
