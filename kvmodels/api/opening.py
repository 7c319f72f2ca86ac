"""Open a store: choose its codec, and open its engine once, for both APIs.

Rules of this module: an opened engine has an owner at once, so that a cancelled or failing open never leaks a file.
Nothing here depends on the event loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, Protocol, cast

from kvmodels.codecs.msgpack import MsgpackCodec, ValueCodec
from kvmodels.codecs.other_codecs import v8_codec
from kvmodels.engines.contract import Engine
from kvmodels.engines.url import default_codec, open_engine
from kvmodels.errors import ClosedError, InvalidArgumentError, UnsupportedError
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Limits, Traits
from kvmodels.runtime.observing import observation as observing
from kvmodels.runtime.observing import operation as operations

Durability = Literal["commit", "relaxed"]

NOTHING_RESERVED: Final[Mapping[str, str]] = MappingProxyType({})


_CODECS: Final[Mapping[str, Callable[[], ValueCodec]]] = MappingProxyType({"msgpack": MsgpackCodec, "v8": v8_codec})


def store_format(codec: str, reserved: Mapping[str, str] = NOTHING_RESERVED) -> StoreFormat:
    """Return the format of a store with a named codec: ``"msgpack"``, or ``"v8"``, the format of Deno KV.

    ``reserved`` maps first key parts that raw writes may not use to their owners; it is read at every write.
    """
    make = _CODECS.get(codec) if isinstance(cast("object", codec), str) else None
    if make is None:
        raise InvalidArgumentError(
            "unknown codec", argument="codec", value=codec, expected=tuple(_CODECS), hint="Choose one of these."
        )
    return StoreFormat(make(), reserved)


def require_storable(codec: ValueCodec, traits: Traits, url: str) -> None:
    """Refuse a codec whose documents the engine does not store. Raises UnsupportedError."""
    _, encoding = codec.encode_document({})
    if traits.value_encodings is not None and encoding not in traits.value_encodings:
        raise UnsupportedError(
            "the engine does not store values in the encoding of the codec",
            url=url,
            reason=codec.name,
            hint='Open the database with another codec, such as codec="v8".',
        )


def codec_for(codec: str | None, url: str | os.PathLike[str]) -> str:
    """Return the name of the codec that was given, or for None the one that suits the URL."""
    return default_codec(url) if codec is None else codec


class Listener(Protocol):
    """A listener of the queue of a store."""

    def stop(self) -> Any:
        """Take no more messages, and wait for running handlers."""


class Opening:
    """An engine that is opened by the first call of ``open``, from any thread.

    ``make`` is called again only if it raised. ``Opening.done(engine)`` wraps an open engine.

    Examples:
        >>> opening = Opening.of_url("memory://")
        >>> opening.engine is None, opening.open() is opening.open()
        (True, True)
        >>> opening.close()
    """

    is_part: ClassVar[bool] = False
    """Whether it is a part of another store."""

    part_of: tuple[Opening, str] | None = None
    """The opening of the store and the name of the tenant, for a part; None for a whole store."""

    engine: Engine | None
    """The open engine, or None before ``open``; set once, so it can be read without a lock."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._closed = False
        self.engine = None
        self.listeners: set[Listener] = set()
        """The listeners of its queue, which closing the store stops."""
        self.reporters: tuple[observing.Reporter, ...] = ()
        """The observers of this handle of the store; replaced as a whole."""

    @property
    def url(self) -> str | None:
        """The URL of the open engine, or None before it is open."""
        return None if self.engine is None else self.engine.url

    def add_observer(self, observer: operations.Observer) -> None:
        """Report finished operations to one more observer. Raises InvalidArgumentError."""
        reporter = observing.Reporter(observer)
        with self._lock:
            self.reporters = (*self.reporters, reporter)

    def remove_observer(self, observer: operations.Observer) -> bool:
        """Report to an observer no more; return whether it was there."""
        with self._lock:
            kept = tuple(one for one in self.reporters if one.observer is not observer)
            removed = len(kept) < len(self.reporters)
            self.reporters = kept
        return removed

    def observation(self, verb: str, collection: str | None = None) -> observing.Observation | None:
        """Return the observation of an operation that is about to begin; None without observers."""
        return observing.Observation(self.reporters, verb, collection) if self.reporters else None

    @classmethod
    def of_url(
        cls,
        url: str | os.PathLike[str],
        *,
        limits: Limits | None = None,
        durability: Durability = "commit",
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        **engine_options: Any,
    ) -> Opening:
        """Return an opening of the store at a URL, with the arguments of ``open_kv``."""
        if limits is not None and not isinstance(cast("object", limits), Limits):
            raise InvalidArgumentError(
                "limits must be a Limits object",
                argument="limits",
                value=limits,
                hint="Pass a Limits, such as Limits.DENO, or None.",
            )

        def make() -> Engine:
            return open_engine(
                url, limits=limits, durability=durability, clock=clock, readonly=readonly, **engine_options
            )

        return cls(make)

    @classmethod
    def done(cls, engine: Engine) -> Opening:
        """Return an opening of an engine that is already open."""
        opening = cls(lambda: engine)
        opening.engine = engine
        return opening

    def of_part(self, part: Engine, tenant: str) -> Opening:
        """Return an opening of the engine of a tenant of this store, which shares its observers and listeners."""
        return _PartOpening(self, part, tenant)

    def open(self) -> Engine:
        """Open the engine, or return the open one; blocks while another thread opens it."""
        engine = self.engine  # set once, and kept after closing
        if engine is not None:
            return engine
        with self._lock:
            if self.engine is None:
                if self._closed:
                    raise ClosedError("the store is closed")
                self.engine = self._make()
            return self.engine

    def close(self) -> None:
        """Close the engine if it is open, and refuse to open it again; idempotent."""
        with self._lock:
            self._closed = True
            if self.engine is not None:
                self.engine.close()


class _PartOpening(Opening):
    """The opening of a part of a store; closing it has no effect."""

    is_part: ClassVar[bool] = True

    def __init__(self, store: Opening, part: Engine, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self.part_of = store, tenant
        self._told: tuple[tuple[observing.Reporter, ...], tuple[observing.Reporter, ...]] = ((), ())
        super().__init__(lambda: part)
        self.engine = part
        self.listeners = store.listeners

    @property
    def reporters(self) -> tuple[observing.Reporter, ...]:
        """The observers of the store, which are told the tenant."""
        reporters = self._store.reporters
        if self._told[0] is not reporters:
            self._told = reporters, observing.TenantReporters.of(reporters, self._tenant)
        return self._told[1]

    @reporters.setter
    def reporters(self, _: object) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Keep those of the store."""

    def close(self) -> None:
        """Leave the store open."""
