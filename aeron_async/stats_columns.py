"""Tables of statistics: columns that are made when they are asked for, and rows made of them.

A table keeps what was taken, and makes a column of it at the first look. A cell may have rows of
its own, such as the receivers of a publication: `Groups` keeps those of all cells as one table, so
that nobody makes a row who only needs numbers.

Invariant: what a table shows never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast, overload

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Columns", "Groups", "Table", "names_of"]

Row = TypeVar("Row")


def names_of(row_type: type[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a table of such rows."""
    return tuple(each.name for each in attrs.fields(row_type))


class Columns(Mapping[str, Sequence[Any]]):
    """Columns by name; each is made when it is first asked for, and then kept.

    Args:
        taken: What they are made of; it must not change any more.
        makers: Returns each column of that, and of other columns; in the order of the names.
    """

    __slots__ = ("_made", "_makers", "_taken")

    def __init__(
        self, taken: Any, makers: Mapping[str, Callable[[Any, Columns], Sequence[Any]]]
    ) -> None:
        self._taken = taken
        self._makers = makers
        self._made: dict[str, Sequence[Any]] = {}

    def __getitem__(self, name: str) -> Sequence[Any]:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = self._makers[name](self._taken, self)
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class Table(Sequence[Row], Generic[Row]):
    """Rows of one type, kept as columns; a row is made when it is asked for.

    Args:
        row_type: An attrs class whose positional arguments are the columns, in order.
        length: How many rows there are.
        make: Returns the columns; called once, when the table is first looked at. Or columns that
            are made one by one.
    """

    __slots__ = ("_columns", "_length", "_make", "row_type")

    def __init__(
        self,
        row_type: type[Row],
        length: int,
        make: Callable[[], Sequence[Sequence[Any]]] | Columns,
    ) -> None:
        self.row_type: Final = row_type
        self._length = length
        self._make: Callable[[], Sequence[Sequence[Any]]] | None = None
        self._columns: Mapping[str, Sequence[Any]] = {}
        if isinstance(make, Columns):
            assert tuple(make) == self.names, "a table has all columns of its rows, in order"
            self._columns = make
        else:
            self._make = make

    @classmethod
    def of(cls, row_type: type[Row], rows: Sequence[Row]) -> Self:
        """Return a table of rows that are there."""
        names = names_of(row_type)
        return cls(
            row_type, len(rows), lambda: [[getattr(row, name) for row in rows] for name in names]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns, in order."""
        return names_of(self.row_type)

    def column(self, name: str) -> Sequence[Any]:
        """Return one column, a value for each row.

        Raises:
            KeyError: There is no such column.
        """
        return self.columns[name]

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """Return the columns by name; one of a driver is made when it is first asked for."""
        if self._make is not None:
            made = self._make()
            self._columns = dict(zip(self.names, made, strict=True))
            self._make = None
        return self._columns

    def complete(self) -> None:
        """Make all columns now, so that no two threads make them."""
        for column in self.columns.values():
            if isinstance(column, Groups):
                column.rows.complete()

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        columns = self.columns.values()
        if isinstance(index, slice):
            return [self.row_type(*row) for row in zip(*(c[index] for c in columns), strict=True)]
        return self.row_type(*[column[index] for column in columns])

    def __iter__(self) -> Iterator[Row]:
        make = cast("Callable[..., Row]", self.row_type)
        return map(make, *self.columns.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Table of {len(self)} {self.row_type.__name__}>"


class Groups(Sequence[tuple[Row, ...]], Generic[Row]):
    """A column whose cells are tuples of rows, all of which are one table.

    Attributes:
        rows: The rows of all cells, one cell after the other.
        starts: Where in it the rows of each cell begin, and then where the last ones end.
    """

    __slots__ = ("rows", "starts")

    def __init__(self, rows: Table[Row], starts: Sequence[int]) -> None:
        self.rows: Final = rows
        self.starts: Final = starts

    @property
    def are_single(self) -> bool:
        """Whether each cell has one row."""
        return len(self.starts) == len(self.rows) + 1 and self.starts == [*range(len(self.starts))]

    @property
    def filled(self) -> list[int]:
        """The places of the cells that have a row."""
        if not len(self.rows):
            return []
        places = enumerate(pairwise(self.starts))
        return [place for place, (start, end) in places if start < end]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> tuple[Row, ...]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[Row, ...]]: ...

    def __getitem__(self, index: int | slice) -> tuple[Row, ...] | list[tuple[Row, ...]]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return tuple(self.rows[self.starts[place] : self.starts[place + 1]])

    def __iter__(self) -> Iterator[tuple[Row, ...]]:
        rows = iter(self.rows)
        for start, end in pairwise(self.starts):
            yield tuple(islice(rows, end - start))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Groups of {len(self.rows)} {self.rows.row_type.__name__} in {len(self)} cells>"
