"""AsyncBoard: places of records among those of one group, as an index of ranks counts them.

Rules of this module: one-line methods over ``kvmodels.query.planning.boards``, which checks arguments, and over the
flows that read. Nothing is read before a method asks for results.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Generic, TypeVar, overload

from kvmodels._support.naming import show_public_path
from kvmodels.api._async.queryset import AsyncRunner
from kvmodels.api.refusals import name_the_way, refuse_copies
from kvmodels.flows.arguments import key_of_record
from kvmodels.flows.reading import boards as reading
from kvmodels.query.planning import boards

R = TypeVar("R")


class AsyncBoard(Generic[R]):
    """The records of one group in the order of a ranked field, by their places; created by ``rank()``.

    A place is counted from counters and a few entries of the index, however many records there are. Every answer is
    that of one state of the store, beside any number of writers. Records with equal values share a rank; their
    positions are in the order of their primary keys.

    In a transaction, a board has its writes. The commit checks every counter that was read, so a transaction that reads
    a rank conflicts with most writes of the board: read it in ``tx.unchecked()``, or after the commit.

    Args:
        runner: runs flows against the store.
        board: the index, and the group.

    Examples:
        >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey, RankIndex
        >>> class Runner(KvModel, collection="runners"):
        ...     name: PrimaryKey[str]
        ...     points: int
        ...     class Meta:
        ...         indexes = (RankIndex("-points", low=0, high=1_000, name="board"),)
        >>> runners = (await AsyncDatabase("memory://", models=[Runner]).open())[Runner]
        >>> for name, points in [("Ada", 700), ("Bo", 400), ("Cy", 700), ("Di", 100)]:
        ...     _ = await runners.create(name=name, points=points)
        >>> board = runners.rank("board")
        >>> await board.rank(points=500), await board.rank_of("Cy"), await board.position_of("Cy"), await board.count()
        (3, 1, 1, 4)
        >>> (await board[0]).name, [runner.name for runner in await board[1:3]], await board.percentile(50)
        ('Ada', ['Cy', 'Bo'], 400)
    """

    __slots__ = ("_board", "_runner")

    def __init__(self, runner: AsyncRunner, board: boards.BoardQuery) -> None:
        self._runner = runner
        self._board = board

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._board!r})"

    # # --- places -----------------------------------------------------------------------------------------------

    async def rank(self, /, **fields: Any) -> int:
        """Return the rank that a value has or would have: 1 and the number of records with a better one.

        Args:
            fields: the ranked field with a value, ``score=1200``.

        Returns:
            The rank, from 1 on, as ``RANK()`` in SQL. Cost: one read, of at most 15 counters of each level and the
            entries of one bucket before the value.

        Raises:
            InvalidArgumentError: not exactly the ranked field.
            InvalidValueError: the field cannot hold the value.
            IndexNotReadyError: the index is not built.
        """
        part = self._board.part(fields)
        return await self._runner.run("rank", reading.rank(self._runner.context, self._board, part))

    async def rank_of(self, record: Any) -> int | None:
        """Return the rank of a stored record; records with equal values share a rank.

        Args:
            record: an object of the model, whose stored value decides, or a primary key.

        Returns:
            The rank, from 1 on; None if the record is not on the board. Cost: two reads, of the record, then as
            ``rank`` together with the record.

        Raises:
            InvalidValueError: neither an object of the model nor a primary key.
            IndexNotReadyError: the index is not built.
        """
        place = await self._place(record, "rank_of", ties=False)
        return None if place is None else place + 1

    async def position_of(self, record: Any) -> int | None:
        """Return the position of a stored record, from 0 on: ``board[position]`` is the record.

        Args:
            record: an object of the model, whose stored value decides, or a primary key.

        Returns:
            The position; records with equal values are in the order of their primary keys. None if the record is not on
            the board. Cost: as for ``rank_of``.

        Raises:
            InvalidValueError, IndexNotReadyError: as for ``rank_of``.
        """
        return await self._place(record, "position_of", ties=True)

    async def _place(self, record: Any, verb: str, *, ties: bool) -> int | None:
        key = key_of_record(self._board.schema, record)
        return await self._runner.run(verb, reading.place_of(self._runner.context, self._board, key, ties=ties))

    # # --- records ----------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, item: int) -> Awaitable[R]: ...
    @overload
    def __getitem__(self, item: slice) -> Awaitable[list[R]]: ...
    def __getitem__(self, item: int | slice) -> Awaitable[R] | Awaitable[list[R]]:
        """Return the record at a position, from 0 on, or a list of those between two positions.

        Cost: one read of 16 counters for each level, and one of the entries and records, for each 500 records.

        Args:
            item: an index, or ``[a:b]`` without a step; not negative.

        Raises:
            DoesNotExist: there is no record at the position (a LookupError).
            InvalidArgumentError: a negative bound or a step.
            IndexNotReadyError: the index is not built.
        """
        schema = self._board.schema
        if isinstance(item, slice):
            start, stop = boards.bounds_of(schema, item)
            return self._runner.run("items", reading.items(self._runner.context, self._board, start, stop))
        return self._item(boards.position_at(schema, item))

    async def _item(self, position: int) -> R:
        found: R = await self._runner.run("item", reading.item(self._runner.context, self._board, position))
        return found

    # async only
    __iter__ = None
    # end async only
    __aiter__ = None  # without it, Python would call __getitem__ with 0, 1, … until an error

    # # --- numbers ----------------------------------------------------------------------------------------------

    async def percentile(self, percent: float) -> Any:
        """Return the least value that this percentage of the records has or falls below, by nearest rank.

        Args:
            percent: from 0, the least value, to 100, the greatest; whatever the order of the board.

        Returns:
            The value, as the index holds it: a datetime in UTC, a Decimal without trailing zeros. None for an empty
            board. Cost: as for an index, without records.

        Raises:
            InvalidArgumentError: not a number from 0 to 100.
            IndexNotReadyError: the index is not built.
        """
        exact = boards.percent_of(percent)
        return await self._runner.run("percentile", reading.percentile(self._runner.context, self._board, exact))

    async def count(self, /, **lookups: Any) -> int:
        """Return the number of records on the board, or of those whose ranked value satisfies conditions.

        Args:
            lookups: conditions on the ranked field, ``score__gte=1000``.

        Returns:
            The number. Cost: one read; of 16 counters without conditions, otherwise as for ``rank`` for each end of a
            range of values.

        Raises:
            UnknownFieldError, UnknownLookupError, InvalidValueError: as in ``filter``.
            InvalidArgumentError: a condition on another field.
            IndexNotReadyError: the index is not built.
        """
        spans = self._board.spans(lookups)
        return await self._runner.run("count", reading.count(self._runner.context, self._board, spans))

    async def explain(self, /, **fields: Any) -> boards.BoardPlan:
        """Return the cost of the rank of a value.

        Args:
            fields: the ranked field with a value, ``score=1200``.

        Returns:
            The index, and the numbers of rows that ``rank`` reads. Many entries mean that ``low`` and ``high`` of the
            index do not fit its values, or that many records have equal values. Cost: as for ``rank``.

        Raises:
            InvalidArgumentError, InvalidValueError, IndexNotReadyError: as for ``rank``.
        """
        part = self._board.part(fields)
        return await self._runner.run("explain", reading.explain(self._runner.context, self._board, part))


show_public_path(AsyncBoard)
name_the_way(AsyncBoard)
refuse_copies(AsyncBoard)
