"""Spans and metrics for OpenTelemetry, whose API the extra ``kvmodels[otel]`` installs.

Names and attributes are the stable semantic conventions for database clients, and a few of this library.

Rules of this module: only the API of OpenTelemetry is used, so a program chooses its SDK and exporters. No other module
imports this one. No keys, values, operands or passwords become attributes.
"""

from __future__ import annotations

from typing import Final, Protocol
from urllib.parse import urlsplit

from kvmodels.errors import UnsupportedError
from kvmodels.runtime.observing.operation import FinishedOperation, Observer

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import SpanKind, Status, StatusCode, TracerProvider
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise UnsupportedError(
        "OpenTelemetry needs a package that is not installed",
        reason="opentelemetry",
        hint="Install it: pip install 'kvmodels[otel]'. QueryLog() and OperationCounters() need no package.",
    ) from missing

_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0)
"""The boundaries in seconds that the conventions ask for."""

_NANOSECONDS: Final = 1_000_000_000

Attributes = dict[str, str | int]


class Observable(Protocol):
    """A ``Database`` or an ``AsyncDatabase``."""

    @property
    def url(self) -> str | None:
        """The URL of the open store, without a password."""
        ...

    def add_observer(self, observer: Observer) -> None:
        """Call an observer with every finished operation."""
        ...


class OpenTelemetryObserver:
    """An observer that makes a span and measurements of each operation; created by ``instrument``."""

    __slots__ = ("_conflicts", "_database", "_durations", "_measures_tenants", "_retries", "_store", "_tracer")

    def __init__(
        self,
        database: Observable,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        *,
        measures_tenants: bool = False,
    ) -> None:
        self._database = database
        self._measures_tenants = measures_tenants
        self._tracer = trace.get_tracer("kvmodels", tracer_provider=tracer_provider)
        meter = metrics.get_meter("kvmodels", meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "db.client.operation.duration",
            unit="s",
            description="Duration of database client operations.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._conflicts = meter.create_counter(
            "kvmodels.client.conflicts", unit="{conflict}", description="Commits that were refused by a failed check."
        )
        self._retries = meter.create_counter(
            "kvmodels.client.retries", unit="{retry}", description="Attempts after the first one."
        )
        self._store: Attributes | None = None

    def __call__(self, operation: FinishedOperation, /) -> None:
        """Make a span, which is a child of the current span of the caller, and record duration, conflicts and retries.

        Args:
            operation: the finished operation.
        """
        if self._store is None:
            self._store = _store_attributes(self._database.url)
        measured = self._store | _common_attributes(operation)
        tenant: Attributes = {} if operation.tenant is None else {"kvmodels.tenant": operation.tenant}
        context = self._span(operation, measured | _span_attributes(operation) | tenant)
        if self._measures_tenants:
            measured |= tenant
        self._durations.record(operation.duration, measured, context)
        if operation.conflicts:
            self._conflicts.add(operation.conflicts, measured, context)
        if operation.retries:
            self._retries.add(len(operation.retries), measured, context)

    def _span(self, operation: FinishedOperation, attributes: Attributes) -> Context:
        """Make the span of an operation and those of its retries; return a context with the former."""
        began = round(operation.started * _NANOSECONDS)
        span = self._tracer.start_span(
            _summary(operation), kind=SpanKind.CLIENT, attributes=attributes, start_time=began
        )
        context = trace.set_span_in_context(span)
        for number, retry in enumerate(operation.retries, 2):
            began_again = began + round(retry.started * _NANOSECONDS)
            child = self._tracer.start_span(
                "retry", context, attributes={"kvmodels.attempt": number}, start_time=began_again
            )
            child.end(began_again + round(retry.duration * _NANOSECONDS))
        if operation.error is not None:
            span.set_status(Status(StatusCode.ERROR, operation.error))
        span.end(began + round(operation.duration * _NANOSECONDS))
        return context


def instrument(
    database: Observable,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    measures_tenants: bool = False,
) -> OpenTelemetryObserver:
    """Report the operations of a database to OpenTelemetry: spans, durations, and counts of conflicts and retries.

    A second call for the same database would report everything twice.

    Args:
        database: a ``Database``, or an ``AsyncDatabase``, which need not be open yet.
        tracer_provider: the provider of spans; None for the global one, also if that is set later.
        meter_provider: the provider of metrics; None for the global one, also if that is set later.
        measures_tenants: whether measurements have the attribute ``kvmodels.tenant``, as spans do. Each tenant then has
            histograms of its own, so leave it out if there are many.

    Returns:
        The observer; ``database.remove_observer(observer)`` ends the reports.

    Examples:
        >>> from kvmodels import Database
        >>> db = Database("memory://")
        >>> observer = instrument(db)
        >>> db.remove_observer(observer)
        True
    """
    observer = OpenTelemetryObserver(database, tracer_provider, meter_provider, measures_tenants=measures_tenants)
    database.add_observer(observer)
    return observer


def _summary(operation: FinishedOperation) -> str:
    return operation.verb if operation.collection is None else f"{operation.verb} {operation.collection}"


def _common_attributes(operation: FinishedOperation) -> Attributes:
    """Return the attributes of both the span and the measurement, which have few different values."""
    attributes: Attributes = {"db.operation.name": operation.verb}
    if operation.collection is not None:
        attributes["db.collection.name"] = operation.collection
    if operation.code is not None:
        attributes["db.response.status_code"] = operation.code
    if operation.error is not None:
        attributes["error.type"] = operation.error
    return attributes


def _span_attributes(operation: FinishedOperation) -> Attributes:
    attributes: Attributes = {
        "db.query.summary": _summary(operation),
        "kvmodels.reads": operation.reads,
        "kvmodels.rows": operation.rows,
        "kvmodels.commits": operation.commits,
        "kvmodels.conflicts": operation.conflicts,
    }
    if operation.indexes:
        attributes["kvmodels.index.name"] = ", ".join(operation.indexes)
    if operation.batch_size is not None and operation.batch_size != 1:  # the conventions leave out a batch of one
        attributes["db.operation.batch.size"] = operation.batch_size
    return attributes


def _store_attributes(url: str | None) -> Attributes:
    """Return the attributes that the URL of a store determines; a path without a scheme is an SQLite file."""
    parts = urlsplit(url or "memory://")
    system = parts.scheme if len(parts.scheme) > 1 else "sqlite"  # the scheme of C:\\store.db is a drive
    system = "etcd" if system == "etcds" else system
    attributes: Attributes = {"db.system.name": system}
    if system not in ("etcd", "postgresql"):
        location = (url or "").partition("://")[2].removeprefix("/") if parts.scheme == system else url or ""
        return attributes | ({"db.namespace": location} if location else {})
    if parts.path.strip("/"):
        attributes["db.namespace"] = parts.path.strip("/")
    if "," in parts.netloc or not parts.hostname:  # one of several servers, or a local socket
        return attributes
    attributes["server.address"] = parts.hostname
    if parts.port is not None:
        attributes["server.port"] = parts.port
    return attributes
