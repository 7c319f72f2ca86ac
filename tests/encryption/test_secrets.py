"""No planted secret is in any byte that leaves a program: files, logs of writes, dumps, logs, spans, cursors, errors.

A hash of a short number is found by trying. So every text of 16 hexadecimal digits or more, and every such piece of
bytes, is also compared with the hashes of all planted numbers.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from hashlib import md5, sha1, sha256, sha512
from pathlib import Path
from typing import Any

import msgpack
import pytest

from kvmodels import (
    Database,
    FinishedOperation,
    KeyRing,
    SlowLog,
)
from kvmodels.core.keys import encode_key
from tests.encryption.models import RING, Note, Patient, names

SECRETS = [f"{number:04}-Zq" for number in range(7000, 7012)]
"""A small set of values, all of which an attacker can try."""


def tries() -> list[bytes]:
    """The secrets as they are, and the hashes of the forms that a library may hash, as bytes and as text."""
    found: list[bytes] = []
    for secret in [*SECRETS, *(one.casefold() for one in SECRETS)]:
        forms = [
            secret.encode(),
            encode_key((secret,)),
            msgpack.packb(secret),
            msgpack.packb([secret]),
            repr(secret).encode(),
        ]
        found += [secret.encode(), secret.encode("utf-16-le")]
        for form in forms:
            for function in (md5, sha1, sha256, sha512):
                digest = function(form).digest()
                found += [digest[:8], digest.hex()[:16].encode()]
    return found


def patients() -> list[Patient]:
    return [
        Patient(
            id=number,
            name=secret,
            insurance=secret,
            city=secret,
            tags=[secret],
            notes=[Note(text=secret)],
        )
        for number, secret in enumerate(SECRETS)
    ]


class Told:
    """The texts of the library: those for its observers and logs, of its answers and errors."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, *what: object) -> None:
        self.texts += [form(one) for one in what for form in (str, repr)]
        views = [getattr(one, "_repr_html_", str) for one in what]
        self.texts += [view() or "" for view in views]

    def observe(self, operation: FinishedOperation) -> None:
        self.tell(operation)

    def error(self, call: Any) -> None:
        with pytest.raises(Exception) as caught:
            call()
        error: Any = caught.value
        self.tell(error, getattr(error, "data", None), error.__cause__, getattr(error, "hint", None))


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def work(db: Database, told: Told) -> None:
    """Every verb, query and refusal with the secrets."""
    found, secret = db[Patient], SECRETS[3]
    told.tell(found.bulk_create(patients(), resume_id="load"))
    told.tell(found.get(insurance=secret), found.filter(city=secret).to_list(), found.all().to_list()[0])
    told.tell(found.filter(city=secret).update(bed=4, resume_id="update"))
    told.tell(found.filter(city__in=SECRETS).update(name=SECRETS[5], resume_id="rename"))
    for query in (
        found.filter(city=secret),
        found.filter(ward="a", city=secret).order_by("bed"),
        found.filter(tags__contains=secret).order_by("bed").sort_in_memory(),
        found.filter(city__in=SECRETS),
    ):
        told.tell(query, query.explain(), query.explain(analyze=True), query.page(size=1).next_cursor)
    told.tell(found.filter(city__in=SECRETS).page(size=2), found.filter(ward="a", city__in=SECRETS).page(size=2))
    found.patch(1, name=SECRETS[1], city=SECRETS[2])
    told.tell(*found.history(1), found.history(1).page(1), *found.trash())
    loaded = found.get(2)
    found.patch(2, bed=1)
    loaded.name = secret
    told.error(lambda: found.save(loaded))
    told.error(lambda: found.insert(Patient(id=99, name=secret, insurance=secret)))
    told.error(lambda: found.filter(city__gt=secret))
    told.error(lambda: found.filter(name=secret))
    told.error(lambda: found.order_by("city").to_list())
    told.error(lambda: found.get(insurance="none", city=secret))
    told.error(lambda: Patient(id="x", name=[secret], insurance=secret))  # type: ignore[arg-type]
    told.error(lambda: found.patch(1, tags=secret))
    told.error(lambda: found.filter(city=[secret]))
    rows: Any = [{"id": 98, "name": secret, "insurance": secret}]
    told.error(lambda: found.bulk_create_from(rows))
    told.tell(found.bulk_create(patients()[:2], on_conflict="ignore"))
    failing = found.filter(ward="a").update(insurance=secret, on_error="collect")
    told.tell(failing, *failing.failed)
    told.tell(db.check(), db.stats(), db.plan(), db.collections(), db.rotate(Patient, to=2))
    told.tell(*(db.explain_key(entry.key) for entry in db.kv.unsafe().list(())))
    told.tell(found.remove(5), found.restore(5))


def assert_unseen(content: bytes, where: object) -> None:
    for one in tries():
        assert one not in content, f"{one!r} in {where}"


def test_nothing_planted_is_found(tmp_path: Path, log: io.StringIO):
    told = Told()
    path = tmp_path / "secret.db"
    with Database(path, models=[Patient], keys=RING, change_log=3600, observer=told.observe) as db:
        db.add_observer(SlowLog(0))
        work(db, told)
        db.dump(tmp_path / "models.ndjson", history=True)
        db.kv.dump(tmp_path / "store.ndjson")
        db.kv.backup(tmp_path / "backup.db")
        for file in tmp_path.iterdir():  # with the write-ahead log of the open store
            assert_unseen(file.read_bytes(), file.name)
    assert len(list(tmp_path.iterdir())) >= 4
    told.tell(log.getvalue())
    assert len(told.texts) > 200
    assert_unseen("\n".join(told.texts).encode(), "texts")


def test_the_digest_of_a_bulk_write_depends_on_the_keys():
    digests = set[bytes]()
    for ring in (RING, RING, KeyRing({1: bytes(32)})):
        with Database("memory://", models=[Patient], keys=ring) as db:
            db[Patient].all().allow_scan().update(name=SECRETS[0], resume_id="digest")
            digests.add(db.kv.unsafe().get(("__kvmodels__", "bulk", "digest")).value["digest"])
    assert len(digests) == 2, "equal in every process, and not that of the value alone"


def test_the_search_finds_what_is_planted():
    for form in (
        SECRETS[0].encode(),
        sha256(encode_key((SECRETS[2],))).hexdigest().encode(),
        sha1(SECRETS[1].encode()).digest(),
    ):
        with pytest.raises(AssertionError):
            assert_unseen(b"xx" + form, "here")


class Service:
    """A source of keys that knows no ids until it is asked."""

    def get(self, key_id: int, /) -> bytes:
        return RING.get(key_id)


def test_a_dump_is_loaded_with_the_keys(tmp_path: Path):
    with Database("memory://", models=[Patient], keys=RING) as db:
        db[Patient].bulk_create(patients())
        db[Patient].patch(1, name="new")
        db.rotate(Patient, to=2)
        db.dump(tmp_path / "models.ndjson", history=True)
        db.kv.dump(tmp_path / "store.ndjson")
    with Database("memory://", models=[Patient], keys=RING) as db:
        db.load(tmp_path / "models.ndjson")
        assert db[Patient].get(insurance=SECRETS[1]).name == "new"
        assert names(db[Patient].history(1)) == ["new", SECRETS[1]]
        assert db.check().ok
    with Database("memory://", models=[Patient], keys=Service()) as db:
        db.load(tmp_path / "models.ndjson")
        assert db[Patient].get(1).name == "new", "the source was asked for key 2, which the header does not list"
        assert db.check().ok
    with Database("memory://whole", models=[], keys=RING) as db:
        db.kv.load(tmp_path / "store.ndjson")
        with Database("memory://whole", models=[Patient], keys=RING) as again:
            assert again[Patient].get(insurance=SECRETS[1]).name == "new"
