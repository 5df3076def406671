"""Conditions on the rows of a table, such as `date >= '2026-11-18' and stream_id = 1001`.

A condition compares a column with constants, and all conditions must hold. The same conditions
select files by the statistics of a table and rows by each reader, so that every reader returns the
same rows.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from operator import and_, eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from aeron_async.errors import ConfigurationError
from aeron_async.text import SHORT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Condition", "all_of", "fitting_files", "parse_conditions"]

OPERATORS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": eq,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
CONDITIONS_MAX: Final = 100
"""Most conditions, and most values of one `in`."""
TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<quoted>\"[^\"]+\")|(?P<number>-?\d{1,19}(?![\w.]))"
    r"|(?P<text>'(?:[^']|'')*')|(?P<sign><=|>=|==|[=<>(),]))",
    re.ASCII,
)
EXAMPLE: Final = "date >= '2026-11-18' and stream_id in (1001, 1002) and position < 4096"


@final
@attrs.frozen
class Condition:
    """A comparison of a column with constants.

    Attributes:
        column: Name of the column.
        operator: `=`, `<`, `<=`, `>` or `>=`.
        values: What to compare with; for `=` any of them.
    """

    column: str
    operator: str
    values: tuple[Any, ...]

    def holds(self, column: Any, literal: Callable[[Any], Any]) -> Any:
        """Return this condition as an expression of a reader.

        Args:
            column: The reader's expression for the column.
            literal: Makes the reader's expression for a constant.
        """
        compare = OPERATORS[self.operator]
        found = compare(column, literal(self.values[0]))
        for value in self.values[1:]:
            found |= compare(column, literal(value))
        return found


def all_of(expressions: Sequence[Any]) -> Any:
    """Return an expression that holds where all of these do; None if there are none."""
    return reduce(and_, expressions) if expressions else None


def fitting_files(files: pa.Table, conditions: Sequence[Condition]) -> pa.Table:
    """Return the files that may hold rows for which all conditions hold.

    Args:
        files: Add actions with columns `partition.NAME`, `min.NAME` and `max.NAME`. A file without
            statistics of a column may hold any value.
        conditions: What the rows must fulfil.
    """
    keep: Any = None
    for each in conditions:
        exact, low, high = (f"{kind}.{each.column}" for kind in ("partition", "min", "max"))
        if exact in files.column_names:
            low = high = exact
        elif low not in files.column_names:
            continue
        found: Any = None
        for value in each.values:
            may = may_hold(each.operator, value, files.column(low), files.column(high))
            found = may if found is None else pc.or_(found, may)
        keep = found if keep is None else pc.and_(keep, found)
    return files if keep is None else files.filter(keep)


def may_hold(operator: str, value: Any, low: Any, high: Any) -> Any:
    """Return which files may hold a row that compares so, by their smallest and largest value."""
    bound = pa.scalar(value, low.type)
    if pa.types.is_timestamp(high.type):
        # Some writers cut statistics off after the millisecond.
        high = pc.add(high, pa.scalar(timedelta(milliseconds=1), pa.duration("us")))
    parts = []
    if operator in {"=", "<", "<="}:
        parts.append(pc.less(low, bound) if operator == "<" else pc.less_equal(low, bound))
    if operator in {"=", ">", ">="}:
        parts.append(pc.greater(high, bound) if operator == ">" else pc.greater_equal(high, bound))
    return pc.fill_null(reduce(pc.and_, parts), True)


def parse_conditions(text: str | None, schema: pa.Schema) -> list[Condition]:
    """Parse conditions joined by `and`; there are none in None.

    A condition is `COLUMN OPERATOR CONSTANT`, `COLUMN between A and B` or `COLUMN in (A, B)`. A
    constant is a whole number or a text in single quotes, which may hold a date or a time.

    Args:
        text: The conditions.
        schema: Columns of the table.

    Raises:
        ConfigurationError: The text has another form, or names no column of the table.
    """
    if text is None:
        return []
    reader = TokenReader(text)
    found: list[Condition] = []
    while True:
        found += read_condition(reader, schema)
        if len(found) > CONDITIONS_MAX:
            reader.refuse(f"has more than {CONDITIONS_MAX} conditions")
        if reader.is_at_end():
            return found
        reader.expect("and")


@final
class TokenReader:
    """Words of a text, one after another.

    Raises:
        ConfigurationError: A part of the text is no word.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str]] = []
        self._place = 0
        at = 0
        while text[at:].strip():
            match = TOKEN.match(text, at)
            if match is None:
                self.refuse(f"cannot be read from {printable(text[at:], SHORT)!r} on")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            at = match.end()

    def is_at_end(self) -> bool:
        """Return whether all words were taken."""
        return self._place == len(self._tokens)

    def take(self) -> tuple[str, str]:
        """Return the next word and its kind; an empty one at the end."""
        self._place += 1
        is_there = self._place <= len(self._tokens)
        return self._tokens[self._place - 1] if is_there else ("end", "")

    def expect(self, word: str) -> None:
        """Take this word.

        Raises:
            ConfigurationError: Another one follows.
        """
        _, found = self.take()
        if found.lower() != word:
            self.refuse(f"must have {word!r}, and has {printable(found, SHORT)!r}")

    def refuse(self, what: str) -> NoReturn:
        """Raise an error about the text."""
        message = f"where {printable(self._text, SHORT)!r} {what}: write it as in {EXAMPLE!r}"
        raise ConfigurationError(message)


def read_condition(reader: TokenReader, schema: pa.Schema) -> list[Condition]:
    """Read one condition, which `between` makes two of."""
    kind, name = reader.take()
    name = name.strip('"')
    if kind not in {"name", "quoted"} or name not in schema.names:
        columns = printable(", ".join(schema.names))
        reader.refuse(f"must name a column of {columns}, and has {printable(name, SHORT)!r}")
    column = schema.field(name)

    def constant() -> Any:
        return read_constant(reader, column)

    operator = reader.take()[1].lower()
    if operator == "between":
        low = constant()
        reader.expect("and")
        return [Condition(name, ">=", (low,)), Condition(name, "<=", (constant(),))]
    if operator == "in":
        reader.expect("(")
        values = [constant()]
        while (sign := reader.take()[1]) == "," and len(values) < CONDITIONS_MAX:
            values.append(constant())
        if sign != ")":
            reader.refuse(f"must have ')' after at most {CONDITIONS_MAX} values of `in`")
        return [Condition(name, "=", tuple(values))]
    operator = "=" if operator == "==" else operator
    if operator not in OPERATORS:
        reader.refuse(
            f"must have one of {', '.join(OPERATORS)}, between or in, and has "
            f"{printable(operator, SHORT)!r}"
        )
    return [Condition(name, operator, (constant(),))]


def read_constant(reader: TokenReader, column: pa.Field) -> Any:
    """Read a constant of the type of a column."""
    kind, word = reader.take()
    text = word[1:-1].replace("''", "'")
    value: Any = None
    if pa.types.is_integer(column.type) and kind == "number":
        with suppress(pa.ArrowInvalid, OverflowError):
            value = pa.scalar(int(word), column.type).as_py()
    elif pa.types.is_string(column.type) and kind == "text":
        value = text
    elif kind == "text":
        with suppress(ValueError):
            value = read_time(text, column.type)
    if value is None:
        reader.refuse(
            f"compares {column.name} with {printable(word, SHORT)}, and {column.name} is "
            f"{column.type}"
        )
    return value


def read_time(text: str, kind: Any) -> date | datetime | None:
    """Return a date or a time; None for a column of neither.

    Raises:
        ValueError: The text is neither.
    """
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    if not pa.types.is_timestamp(kind):
        return None
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=None if kind.tz is None else moment.tzinfo or UTC)
