"""Descriptions of the collections, indexes, keys and sizes of a database or of one tenant.

Rules of this module: a method runs one flow and contains no decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeVar, overload

from kvmodels.api import core as database_core
from kvmodels.api import opening as kv_opening
from kvmodels.api import schema_arguments
from kvmodels.api._async import _compat as worlds
from kvmodels.api.progress import listening
from kvmodels.core.keys import Key
from kvmodels.flows import arguments
from kvmodels.flows import effects as requests
from kvmodels.flows.describe import catalogue, stats
from kvmodels.flows.describe import keys as explaining
from kvmodels.flows.describe import tenants as tenant_stats
from kvmodels.flows.evolution import throttle as pace

T = TypeVar("T")


class AsyncDescriptions(ABC):
    """The methods of a database that describe what the store holds."""

    __slots__ = ()

    _core: database_core.DatabaseCore
    _opening: kv_opening.Opening

    @abstractmethod
    def _run(self, verb: str, flow: requests.AnyFlow[T]) -> Coroutine[Any, Any, T]:
        """Run the flow of a method, observed under its name."""

    @abstractmethod
    def _require_store(self, call: str) -> None:
        """Refuse a call of the whole store on the database of a tenant. Raises UnsupportedError."""

    async def collections(self) -> tuple[catalogue.CollectionDescription, ...]:
        """Return the collections of the store, also those that no model of this program declares.

        Returns:
            The collections in the order of their names, from the catalogue of the store. Cost: one read.

        Raises:
            DecodeError: the catalogue is damaged.

        Examples:
            >>> from kvmodels import AsyncDatabase, KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: str
            >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
            ...     [(one.name, one.model, dict(one.fields)) for one in await db.collections()]
            [('trees', 'Tree', {'id': 'int', 'kind': 'str'})]
        """
        return await self._run("collections", catalogue.describe_collections(self._core.context))

    async def indexes(self) -> tuple[catalogue.IndexStatus, ...]:
        """Return the indexes of the store with their states, also those that no model of this program declares.

        Returns:
            The indexes by collection, every generation of each, from the catalogue of the store; and the declared
            indexes that the store lacks, which are disabled. Cost: one read, and two more requests while an index is
            being built.

        Raises:
            DecodeError: the catalogue is damaged.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: Indexed[str]
            >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
            ...     print(*await db.indexes(), sep=", ")
            trees.kind: readable; index kind (kind)
        """
        return await self._run("indexes", catalogue.describe_indexes(self._core.context))

    async def explain_key(self, key: Key | bytes) -> explaining.KeyExplanation:
        """Return what a key of the store is, such as a record, an index entry, a lock or a message.

        Args:
            key: a key as ``db.kv`` and the findings of ``check()`` have it, or its packed bytes.

        Returns:
            The explanation; print it. Keys of models are explained by the catalogue of the store, so no class is
            needed. Cost: two reads.

        Raises:
            InvalidArgumentError, InvalidKeyError: it is not a key.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: Indexed[str]
            >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
            ...     _ = await db[Tree].create(id=7, kind="oak")
            ...     print(await db.explain_key(("trees_by_kind", "oak", 7)))
            entry of trees.kind: kind='oak', record 7
        """
        return await self._run("explain_key", explaining.explain_key(self._core.context, key))

    @overload
    async def stats(
        self,
        *,
        exact: bool = False,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        tenants: None = None,
    ) -> stats.StoreStats: ...
    @overload
    async def stats(
        self,
        *,
        exact: bool = False,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        tenants: Literal[True] | Iterable[str],
    ) -> tenant_stats.TenantsStats: ...
    async def stats(
        self,
        *,
        exact: bool = False,
        progress: bool | Callable[[pace.SchemaProgress], object] | None = None,
        throttle: float | None = None,
        tenants: Literal[True] | Iterable[str] | None = None,
    ) -> stats.StoreStats | tenant_stats.TenantsStats:
        """Return the numbers of rows and bytes by collection and index, and of queues, locks and other keys.

        Args:
            exact: read every row; otherwise rows are only counted, and their sizes estimated from a sample.
            progress: with ``exact``: True for a progress bar (extra ``rich``), or a function that is called after each
                batch with a ``SchemaProgress`` whose ``step`` is ``"stats"``.
            throttle: with ``exact``, the maximum number of rows per second; None for no limit.
            tenants: True for all tenants, or the names of some: return the rows and bytes of each of them instead.
                Every row of theirs is read, as with ``exact``.

        Returns:
            The numbers; print them. Writes during the call may be counted in part. Cost: ``exact`` reads every row in
            batches of 500; otherwise one count and two reads of at most 100 rows for each index. Memory does not
            depend on the size of the store. With ``tenants``, all of them are read by one walk in batches of 500 rows,
            and some one after the other, after their rows; memory holds one number for each.

        Raises:
            InvalidArgumentError: ``exact`` is not a bool, or another argument is not valid.
            TenantNotFoundError, TenantRemovedError: one of the given tenants does not exist.
            UnsupportedError: this is the database of a tenant, and ``tenants`` is given.

        Examples:
            >>> from kvmodels import AsyncDatabase, Indexed, KvModel, PrimaryKey
            >>> class Tree(KvModel, collection="trees"):
            ...     id: PrimaryKey[int]
            ...     kind: Indexed[str]
            >>> async with AsyncDatabase("memory://", models=[Tree]) as db:
            ...     _ = await db[Tree].create(id=7, kind="oak")
            ...     trees = (await db.stats()).collections[0]
            ...     str(trees.records), trees.indexes[0].name, trees.indexes[0].entries.rows
            ('1 row, 23 bytes', 'kind', 1)
        """
        with listening.listener(progress, "stats") as listen:
            arguments.require_flag("exact", exact)
            speed = pace.Pace(listen, throttle)
            if tenants is not None:
                self._require_store("stats")
                names = schema_arguments.require_names(tenants)
                return await self._run("stats", tenant_stats.measure_tenants(self._core.context, speed, names))
            found = await self._run("stats", stats.measure(self._core.context, speed, exact=exact))
            return replace(found, files=await worlds.in_thread(database_core.file_sizes, self._opening.open()))
