"""The table of costs on the page about files is what an engine is asked for, measured here."""

from __future__ import annotations

from collections.abc import Callable

from kvmodels import Blob, Database, KvModel, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.indexing.blobs import LOOSE_MS
from tests.docs.measured_engine import Cost, MeasuredEngine
from tests.kv.stores import Clock
from tests.source_tree import REPOSITORY

PAGE = REPOSITORY / "docs" / "guides" / "files.md"
MIB = bytes(1024 * 1024)


class Document(KvModel, collection="documents"):
    """1 has a file of 1 MiB, and 3 one of 3 MiB."""

    id: PrimaryKey[int]
    title: str = ""
    scan: Blob | None = None


def scan_of(db: Database, key: int) -> Blob:
    scan = db[Document].get(key).scan
    assert scan is not None
    return scan


def read(blob: Blob, start: int, size: int) -> None:
    with blob.open() as file:
        file.seek(start)
        assert len(file.read(size)) == size


CALLS: dict[str, Callable[[Database, Blob, Blob], object]] = {
    "documents.create(id=4)": lambda db, _, __: db[Document].create(id=4),
    "documents.create(id=4, scan=Blob(…))": lambda db, _, __: db[Document].create(id=4, scan=Blob(MIB)),
    "documents.create(id=4, scan=Blob(…))`, 3 MiB": lambda db, _, __: db[Document].create(id=4, scan=Blob(MIB * 3)),
    "documents.create(id=4, scan=doc.scan)`, a copy": lambda db, scan, _: db[Document].create(id=4, scan=scan),
    "documents.patch(1, title=…)": lambda db, _, __: db[Document].patch(1, title="new"),
    "documents.patch(1, scan=Blob(…))": lambda db, _, __: db[Document].patch(1, scan=Blob(MIB)),
    "documents.patch(1, scan=None)": lambda db, _, __: db[Document].patch(1, scan=None),
    "documents.remove(1)": lambda db, _, __: db[Document].remove(1),
    "file.read()": lambda _, scan, __: read(scan, 0, len(MIB)),
    "file.read()`, 3 MiB": lambda _, __, large: read(large, 0, len(MIB) * 3),
    "file.seek(…); file.read(100)`, in one chunk": lambda _, scan, __: read(scan, 600_000, 100),
    "db.sweep_blobs()`, nothing is due": lambda db, _, __: db.sweep_blobs(),
    "db.sweep_blobs()`, one file is due": lambda db, _, __: db.sweep_blobs(),
}


def cost_of(name: str) -> Cost:
    clock = Clock()
    engine = MeasuredEngine(MemoryEngine(clock=clock))
    with Database.from_engine(engine, DatabaseCore([Document])) as db:
        documents = db[Document]
        documents.bulk_create([Document(id=1, scan=Blob(MIB)), Document(id=3, scan=Blob(MIB * 3))])
        if name.endswith("one file is due"):
            documents.create(id=5, scan=Blob(MIB))
            documents.remove(5)
            clock.ms += LOOSE_MS
        scans = [scan_of(db, key) for key in (1, 3)]
        engine.take()
        CALLS[name](db, *scans)
        return engine.take()


def cost_rows() -> list[str]:
    """The table as the page has to show it."""
    return [f"| `{name}{'' if '`' in name else '`'} | " + " | ".join(map(str, cost_of(name))) + " |" for name in CALLS]


def test_the_page_shows_what_each_call_costs() -> None:
    table = PAGE.read_text("utf-8").partition("\n## Costs\n")[2]
    shown = [line for line in table.splitlines() if line.startswith("| `")]
    assert shown == cost_rows(), "\n".join(cost_rows())
