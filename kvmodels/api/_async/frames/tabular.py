"""AsyncTabular: results as tables of Arrow, data frames and Parquet files.

Rules of this module: results are read in batches and converted at once; only ``to_parquet`` and the stream of a
synchronous query set do not hold all rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from kvmodels.api._async._compat import ArrowStream, in_thread
from kvmodels.api.progress import listening
from kvmodels.flows.arguments import require_callable
from kvmodels.flows.reading.scan import Batches
from kvmodels.frames import frames, layouts, parquet_files, streams
from kvmodels.runtime.observing import observation as observing


class TableSource(NamedTuple):
    """The columns of a table, the scan that reads its rows, its runner, and its observation."""

    layout: layouts.TableLayout
    scan: Batches
    runner: Any
    observation: observing.Observation | None


class AsyncTabular(ArrowStream):
    """Methods of query sets and groups that return their results as tables.

    The types of columns follow the types of fields, whatever the values are; the page "Data frames, Arrow and Parquet"
    has the table. They need pyarrow, the extra ``kvmodels[arrow]``.
    """

    __slots__ = ()

    @abstractmethod
    def _table(self, columns: layouts.Columns | None) -> TableSource:
        """Return the source of a table with these columns; nothing is read yet."""

    def _streamed(self, columns: layouts.Columns | None = None) -> tuple[layouts.TableLayout, AsyncGenerator[Any]]:
        source = self._table(columns)
        return source.layout, self._batches(source)

    async def _batches(self, source: TableSource) -> AsyncGenerator[Any]:
        batches = streams.TableBatches(source.layout)
        with observing.observed(source.observation):
            while not source.scan.done:
                results = await source.runner.run_part(source.scan.next_batch(), source.observation)
                for batch in batches.add(results):
                    yield batch
        for batch in batches.rest():
            yield batch

    async def to_arrow(self, *, columns: layouts.Columns | None = None) -> Any:
        """Return all results as a table of Arrow.

        Args:
            columns: the columns: for objects, names as for ``values``; for ``values`` and groups, some of their names.
                By default all fields, or all names.

        Returns:
            A ``pyarrow.Table``. Cost: as for ``to_list``; objects of Python are held for one batch only.

        Raises:
            UnsupportedError: pyarrow is not installed.
            InvalidValueError: a field has no Arrow type; or, while reading, its type cannot hold a value.
            UnknownFieldError, InvalidArgumentError: there is no column of a name, or the query returns related records.
            NoUsableIndexError, IndexNotReadyError: as for ``to_list``.
        """
        layout, batches = self._streamed(columns)
        output = streams.TableOutput(layout)
        async for batch in batches:
            output.write(batch)
        return output.table()

    async def to_pandas(self, *, columns: layouts.Columns | None = None) -> Any:
        """Return all results as a data frame of pandas.

        Args:
            columns: as for ``to_arrow``.

        Returns:
            A ``pandas.DataFrame``. Ints and bools have the types ``Int64`` and ``boolean``, which know missing values.
            Cost: as for ``to_arrow``.

        Raises:
            UnsupportedError: pyarrow or pandas is not installed.
            InvalidValueError, UnknownFieldError, InvalidArgumentError, NoUsableIndexError, IndexNotReadyError: as for
                ``to_arrow``.
        """
        return frames.pandas_frame(await self.to_arrow(columns=columns))

    async def to_polars(self, *, columns: layouts.Columns | None = None) -> Any:
        """Return all results as a data frame of polars.

        Args:
            columns: as for ``to_arrow``.

        Returns:
            A ``polars.DataFrame``. Cost: as for ``to_arrow``.

        Raises:
            UnsupportedError: pyarrow or polars is not installed.
            InvalidValueError, UnknownFieldError, InvalidArgumentError, NoUsableIndexError, IndexNotReadyError: as for
                ``to_arrow``.
        """
        return frames.polars_frame(await self.to_arrow(columns=columns))

    async def to_parquet(
        self,
        file: parquet_files.ParquetFile,
        *,
        columns: layouts.Columns | None = None,
        progress: bool | Callable[[int], object] | None = None,
    ) -> int:
        """Write all results to a new Parquet file; one batch is in memory.

        Args:
            file: a new path, or a file object in binary mode. A path that exists is never overwritten, and an
                unfinished file is removed.
            columns: as for ``to_arrow``.
            progress: a function that is called with the number of rows so far after each batch; True draws a bar on
                standard error, with rich.

        Returns:
            The number of rows. Cost: as for ``to_list``, without holding the results.

        Raises:
            EngineError: the file exists already, or cannot be written.
            UnsupportedError, InvalidValueError, UnknownFieldError, InvalidArgumentError, NoUsableIndexError,
                IndexNotReadyError: as for ``to_arrow``; ``progress`` is not a function.
        """
        if progress is not None and not isinstance(progress, bool):
            require_callable("progress", progress, "Give True, or a function that takes a number of rows.")
        layout, batches = self._streamed(columns)
        with (
            listening.listener(progress, "export") as listen,
            parquet_files.ParquetOutput(file, layout) as output,
        ):
            async for batch in batches:
                await in_thread(output.write, batch)
                if listen is not None:
                    listen(output.rows)
            await in_thread(output.close)
        return output.rows
