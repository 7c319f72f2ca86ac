"""Spans and measurements of the SDK of OpenTelemetry, compared with golden lists."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Histogram, HistogramDataPoint, InMemoryMetricReader, Metric, Sum
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kvmodels import AsyncDatabase, Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.ext import opentelemetry
from kvmodels.ext.opentelemetry import instrument


class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    email: Unique[str]
    age: Indexed[int]


class Telemetry(NamedTuple):
    """Providers of the SDK, with what they have exported."""

    tracers: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter
    reader: InMemoryMetricReader

    def instrument(self, db: Any) -> opentelemetry.OpenTelemetryObserver:
        return instrument(db, tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self) -> list[ReadableSpan]:
        """The spans in the order of their beginnings."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: (span.start_time or 0, span.name))

    def points(self) -> list[HistogramDataPoint]:
        """The values of the histogram of durations."""
        metric = self.metrics()["db.client.operation.duration"]
        assert metric.unit == "s"
        assert isinstance(metric.data, Histogram)
        return [*metric.data.data_points]

    def metrics(self) -> dict[str, Metric]:
        """The metrics with values, by name."""
        data = self.reader.get_metrics_data()
        assert data is not None
        scopes = [scope for one in data.resource_metrics for scope in one.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}


@pytest.fixture
def telemetry() -> Telemetry:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    return Telemetry(tracers, MeterProvider([reader], shutdown_on_exit=False), exporter, reader)


SECRET = "secret"


def use(db: Database) -> None:
    db[User].bulk_create([User(id=number, email=f"{SECRET}{number}", age=1) for number in (1, 2)])
    db[User].get(email=f"{SECRET}1")
    db[User].filter(age=1).to_list()
    with pytest.raises(User.DoesNotExist):
        db[User].get(9)
    db.kv.set((SECRET,), SECRET)


GOLDEN: list[tuple[str, dict[str, object], StatusCode]] = [
    (
        "bulk_create users",
        {"db.operation.name": "bulk_create", "db.operation.batch.size": 2, "kvmodels.commits": 1},
        StatusCode.UNSET,
    ),
    (
        "get users",
        {
            "db.operation.name": "get",
            "kvmodels.index.name": "users.email",
            "kvmodels.reads": 1,
            "kvmodels.rows": 2,
        },
        StatusCode.UNSET,
    ),
    (
        "to_list users",
        {
            "db.operation.name": "to_list",
            "kvmodels.index.name": "users.age",
            "kvmodels.reads": 1,
            "kvmodels.rows": 4,
        },
        StatusCode.UNSET,
    ),
    (
        "get users",
        {
            "db.operation.name": "get",
            "kvmodels.reads": 1,
            "db.response.status_code": "KV201",
            "error.type": "DoesNotExist",
        },
        StatusCode.ERROR,
    ),
    ("commit", {"db.operation.name": "commit", "kvmodels.commits": 1}, StatusCode.UNSET),
]


def test_spans_have_the_names_and_attributes_of_the_conventions(telemetry: Telemetry):
    with Database("memory://shop", models=[User]) as db:
        telemetry.instrument(db)
        use(db)
    spans = telemetry.spans()
    expected = []
    for name, given, status in GOLDEN:
        counts = {"kvmodels.reads": 0, "kvmodels.rows": 0, "kvmodels.commits": 0, "kvmodels.conflicts": 0}
        store = {"db.system.name": "memory", "db.namespace": "shop", "db.query.summary": name}
        collection = {"db.collection.name": "users"} if " " in name else {}
        expected.append((name, counts | store | collection | given, status))
    assert [(span.name, dict(span.attributes or {}), span.status.status_code) for span in spans] == expected
    assert {span.kind for span in spans} == {SpanKind.CLIENT}
    assert SECRET not in "".join(span.to_json() for span in spans)


def test_durations_are_recorded_with_the_boundaries_of_the_conventions(telemetry: Telemetry):
    with Database("memory://", models=[User]) as db:
        telemetry.instrument(db)
        use(db)
    points = telemetry.points()
    names = {"db.collection.name": "users"}
    missing = {"db.response.status_code": "KV201", "error.type": "DoesNotExist"}
    assert sorted((sorted((point.attributes or {}).items()), point.count) for point in points) == sorted(
        (sorted(attributes.items()), 1)
        for attributes in (
            {"db.system.name": "memory", "db.operation.name": "bulk_create"} | names,
            {"db.system.name": "memory", "db.operation.name": "get"} | names,
            {"db.system.name": "memory", "db.operation.name": "get"} | names | missing,
            {"db.system.name": "memory", "db.operation.name": "to_list"} | names,
            {"db.system.name": "memory", "db.operation.name": "commit"},
        )
    )
    assert {tuple(point.explicit_bounds) for point in points} == {(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)}


def test_retries_are_children_within_the_span_of_the_operation(telemetry: Telemetry):
    with Database("memory://", models=[User]) as db:
        db[User].create(id=1, email="a", age=1)
        telemetry.instrument(db)
        rivals = [7, 8]

        def change(user: User) -> None:
            if rivals:
                rival = rivals.pop()
                db[User].filter(id=1).update(age=rival)
            user.age += 1

        db[User].mutate(1, change)
    parent = next(span for span in telemetry.spans() if span.name == "mutate users")
    children = [span for span in telemetry.spans() if span.name == "retry"]
    assert [dict(child.attributes or {}) for child in children] == [{"kvmodels.attempt": 2}, {"kvmodels.attempt": 3}]
    assert {child.parent and child.parent.span_id for child in children} == {parent.context.span_id}
    for child in children:
        assert parent.start_time <= child.start_time <= child.end_time <= parent.end_time  # type: ignore[operator]
    assert (parent.attributes or {})["kvmodels.conflicts"] == 2
    counted = telemetry.metrics()
    for name in ("kvmodels.client.conflicts", "kvmodels.client.retries"):
        data = counted[name].data
        assert isinstance(data, Sum)
        assert data.is_monotonic
        (point,) = data.data_points
        assert (point.value, (point.attributes or {})["db.operation.name"]) == (2, "mutate")


def test_spans_are_children_of_the_current_span_of_the_caller(telemetry: Telemetry):
    with Database("memory://", models=[User]) as db:
        observer = telemetry.instrument(db)
        with telemetry.tracers.get_tracer("app").start_as_current_span("request") as request:
            db[User].get_or_none(1)
            with db.transaction() as tx:
                tx[User].get_or_none(2)
        db.remove_observer(observer)
        db[User].get_or_none(3)
    spans = [span for span in telemetry.spans() if span.name != "request"]
    assert sorted(span.name for span in spans) == ["get_or_none users", "get_or_none users", "transaction"]
    assert {span.parent and span.parent.span_id for span in spans} == {request.get_span_context().span_id}


async def test_tasks_keep_their_spans_apart(telemetry: Telemetry):
    tracer = telemetry.tracers.get_tracer("app")
    db = AsyncDatabase("memory://", models=[User])
    telemetry.instrument(db)
    async with db:
        with tracer.start_as_current_span("request") as request:
            await db[User].create(id=1, email="a", age=1)
        _ = [user async for user in db[User].filter(age=1)]
    by_name = {span.name: span for span in telemetry.spans()}
    assert sorted(by_name) == ["insert users", "iterate users", "open", "request"]
    assert by_name["insert users"].parent == request.get_span_context()
    assert by_name["iterate users"].parent is None


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (None, {"db.system.name": "memory"}),
        ("/var/shop.db", {"db.system.name": "sqlite", "db.namespace": "/var/shop.db"}),
        ("sqlite:////var/shop.db", {"db.system.name": "sqlite", "db.namespace": "/var/shop.db"}),
        ("lmdb:///shop", {"db.system.name": "lmdb", "db.namespace": "shop"}),
        (
            "postgresql://ada:***@db.example.org:6432/shop?sslmode=***",
            {
                "db.system.name": "postgresql",
                "db.namespace": "shop",
                "server.address": "db.example.org",
                "server.port": 6432,
            },
        ),
        ("postgresql://a.org,b.org/shop", {"db.system.name": "postgresql", "db.namespace": "shop"}),
        ("etcds://h1:2379,h2:2379/shop/a", {"db.system.name": "etcd", "db.namespace": "shop/a"}),
        (
            "etcd://h1:2379/shop",
            {"db.system.name": "etcd", "db.namespace": "shop", "server.address": "h1", "server.port": 2379},
        ),
        ("postgresql:///shop", {"db.system.name": "postgresql", "db.namespace": "shop"}),
    ],
)
def test_the_store_is_described_by_its_url(url: str | None, expected: dict[str, object]):
    assert opentelemetry._store_attributes(url) == expected


WITHOUT_SDK = """
import sys
sys.modules["opentelemetry.sdk"] = None
from kvmodels import Database
import kvmodels
assert not [name for name in sys.modules if name.startswith("opentelemetry.") and name != "opentelemetry.sdk"]
from kvmodels.ext.opentelemetry import instrument
db = Database("memory://")
instrument(db)
db.kv.set(("a",), 1)
print(db.kv.get(("a",)).value)
"""


def test_only_the_api_is_needed_and_the_library_does_not_load_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_SDK], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1\n", "")


WITHOUT_API = """
import sys
sys.modules["opentelemetry"] = None
import kvmodels.ext.opentelemetry
"""


def test_a_missing_package_is_an_error_that_names_the_extra():
    done = subprocess.run([sys.executable, "-c", WITHOUT_API], capture_output=True, text=True, check=False)
    assert "pip install 'kvmodels[otel]'" in done.stderr
