"""Sums of ints that the server computes: the rows and errors of those that the process computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kvmodels.api._async.kv import open_async_kv
from kvmodels.api._sync.kv import open_kv
from kvmodels.codecs.base import MSGPACK_ENCODING
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.core.values import KvU64
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.errors import DecodeError, EngineError, InvalidValueError
from tests.contract.shorthand import stored
from tests.postgres.databases import Databases
from tests.postgres.proxy import Proxy, proxy_of
from tests.postgres.server import PostgresServer

pytestmark = pytest.mark.servers

KEY = ("n",)
EDGES = [0, 1, 31, 32, 33, 127, 128, 129, 255, 256, 32_767, 32_768, 32_769, 65_535, 65_536]
EDGES += [2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**61, 2**62 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64]
NUMBERS = sorted({sign * one for one in EDGES for sign in (1, -1)})
ODD_FORMS = ["cc05", "cd0005", "ce00000005", "cf0000000000000005", "d005", "d1ffff", "d2ffffffff", "d3" + "ff" * 8]
NO_FORMS = ["", "cc", "05cc", "cd05", "c0", "c3", "d4", "dc", "e0e0", "cb3ff0000000000000", "a0", "80"]
BOUNDS: list[dict[str, Any]] = [
    {},
    {"minimum": 0},
    {"maximum": 127},
    {"minimum": -33, "maximum": 2**62},
    {"minimum": -(2**63) + 1, "maximum": 2**63 - 1, "clamp": True},
    {"minimum": -5, "maximum": 2**32, "clamp": True},
    {"maximum": 2**80, "clamp": True},
    {"minimum": 2**80, "clamp": True},
]


@pytest.fixture
def proxy(postgres_server: PostgresServer) -> Iterator[Proxy]:
    with proxy_of(postgres_server.folder) as one:
        yield one


def outcome_of(kv: Any, key: tuple[Any, ...], operand: int, bounds: dict[str, Any]) -> Any:
    """Return the stored row after a sum, or the refusal."""
    try:
        assert kv.atomic().mutate("sum", key, operand, **bounds).commit()
    except InvalidValueError as error:
        return type(error), error.message, error.data
    return stored(kv._opening.open(), encode_key(key))[:3]


def test_a_sum_on_the_server_leaves_the_row_and_raises_the_error_of_one_in_the_process(databases: Databases):
    with open_kv("memory://") as here, open_kv(databases.url()) as there:
        for bounds in BOUNDS:
            for operand in (1, -1, 100, -(2**61), 2**62, 2**70):
                numbers: dict[tuple[Any, ...], int] = {("n", number): number for number in NUMBERS}
                for kv in (here, there):
                    write = kv.atomic()
                    for key, number in numbers.items():
                        write.set(key, number)
                    write.commit()
                for key in (*list(numbers)[:: 1 if operand == 1 else 5], ("absent", operand, str(bounds))):
                    assert outcome_of(there, key, operand, bounds) == outcome_of(here, key, operand, bounds)


@pytest.mark.parametrize("data", ODD_FORMS + NO_FORMS)
@pytest.mark.parametrize("encoding", [MSGPACK_ENCODING, 2])
def test_a_sum_on_a_row_that_another_writer_has_made(databases: Databases, data: str, encoding: int):
    answers: list[Any] = []
    for url in ("memory://", databases.emptied()):
        with open_kv(url) as kv:
            kv._opening.open().commit(AtomicWrite((), (Set(encode_key(KEY), bytes.fromhex(data), encoding),)))
            try:
                kv.atomic().mutate("sum", KEY, 2, maximum=50).commit()
            except (InvalidValueError, DecodeError) as error:
                answers.append((type(error), str(error)))
            else:
                answers.append(kv.get(KEY).value)
    assert answers[0] == answers[1]
    assert (answers[0] in (7, 1)) == (data in ODD_FORMS and encoding == MSGPACK_ENCODING)


def test_a_deadline_is_kept_or_cleared_as_told(databases: Databases):
    now = 1_700_000_000_000
    with open_kv(databases.url(), clock=lambda: now) as kv:
        kv.set(KEY, 5, expire_in=10)
        kv.atomic().mutate("sum", KEY, 1, maximum=7, keep_deadline=True).commit()
        assert (kv.get(KEY).value, kv.get(KEY).expires_at) == (6, now + 10_000)
        now += 10_000
        kv.atomic().mutate("sum", KEY, 1, maximum=7, keep_deadline=True, expire_in=3).commit()
        assert (kv.get(KEY).value, kv.get(KEY).expires_at) == (1, now + 3_000)
        kv.atomic().mutate("sum", KEY, 1).mutate("sum", ("m",), 1, expire_in=4).mutate("sum", ("u",), KvU64(9)).commit()
        assert (kv.get(KEY).value, kv.get(KEY).expires_at, kv.get(("m",)).expires_at) == (2, None, now + 4_000)
        assert kv.get(("u",)).value == KvU64(9)


def test_a_refusal_is_that_of_the_first_mutation_that_cannot_be(databases: Databases):
    with open_kv(databases.url()) as kv:
        kv.atomic().set(("text",), "x").set(KEY, 5).commit()
        for order in (("text", "n"), ("n", "text")):
            write = kv.atomic()
            for name in order:
                write = write.sum((name,), 1) if name == "text" else write.mutate("sum", (name,), 9, maximum=6)
            with pytest.raises(InvalidValueError) as caught:
                write.commit()
            assert ("text" in str(caught.value.data)) == (order[0] == "text")
        assert kv.get(KEY).value == 5


def test_a_sum_within_its_bounds_is_one_round_trip(proxy: Proxy, databases: Databases):
    with open_kv(proxy.url(databases.url()), prepare=False) as kv:
        before = 0
        for _ in range(3):
            before = proxy.round_trips
            kv.atomic().mutate("sum", KEY, 1, maximum=3).commit()
        assert proxy.round_trips - before == 1
        with pytest.raises(InvalidValueError, match="outside its range"):
            kv.atomic().mutate("sum", KEY, 1, maximum=3).commit()


async def test_a_task_adds_in_one_round_trip_and_is_refused_by_the_bounds(proxy: Proxy, databases: Databases):
    async with open_async_kv(proxy.url(databases.url()), prepare=False) as kv:
        before = 0
        for _ in range(3):
            before = proxy.round_trips
            await kv.atomic().mutate("sum", KEY, 1, maximum=3).commit()
        assert proxy.round_trips - before == 1
        with pytest.raises(InvalidValueError, match="outside its range"):
            await kv.atomic().mutate("sum", KEY, 1, maximum=3).commit()
        entry = await kv.get(KEY)
        assert entry is not None
        assert entry.value == 3


@pytest.mark.parametrize("functions", [7, 8])
def test_functions_of_an_earlier_release_are_not_asked_for_sums_of_ints(databases: Databases, functions: int):
    """A store that this role may not upgrade: its functions lack ``added_1``."""
    url = databases.url()
    PostgresEngine(url).close()
    with databases.admin() as admin:
        renaming = "ALTER FUNCTION kvmodels.{} (bytea, bytea) RENAME TO {}"
        admin.execute(renaming.format("added_1", "gone").encode())
        admin.execute("UPDATE kvmodels.meta SET functions = %s", (functions,))
        try:
            with open_kv(f"{url}-old", create=False) as kv:
                kv.set(KEY, 5)
                write = kv.atomic().mutate("sum", KEY, 1, maximum=6)
                if functions == 8:
                    with pytest.raises(EngineError, match="42883"):
                        write.commit()
                else:
                    assert write.commit()
                    assert kv.get(KEY).value == 6
        finally:
            admin.execute(renaming.format("gone", "added_1").encode())
            admin.execute("UPDATE kvmodels.meta SET functions = 8")


def test_a_program_of_an_earlier_release_uses_the_upgraded_store(databases: Databases):
    """It opens the store as it is, and its sums have the kinds that it knows."""
    url = databases.url()
    with open_kv(url) as newer, open_kv(f"{url}-older") as older:
        engine = older._opening.open()
        assert isinstance(engine, PostgresEngine)
        assert engine._store is not None
        engine._store.adds_integers = False
        for kv in (newer, older, newer, older):
            kv.atomic().mutate("sum", KEY, 1, maximum=4).sum(("u",), 1).commit()
        assert (newer.get(KEY).value, older.get(("u",)).value) == (4, KvU64(4))
        with pytest.raises(InvalidValueError):
            older.atomic().mutate("sum", KEY, 1, maximum=4).commit()
