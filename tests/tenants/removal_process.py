"""A process that writes in a tenant, creates it when it is gone, or removes it and is killed.

``python -m tests.tenants.removal_process URL ROLE SEED``: each value that it writes names the life of the tenant that
its handle has seen. It tells a dot for each write that was stored, and works until it is killed.
"""

from __future__ import annotations

import io
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kvmodels import Database, Indexed, KvModel, KvModelsError, PrimaryKey, TenantNotFoundError, TenantRemovedError
from kvmodels.engines.part.engine import PartEngine
from kvmodels.flows import effects, tenants

NAME: Final = "acme"
CREATOR, WRITER, REMOVER = "creator", "writer", "remover"


class Note(KvModel, collection="notes"):
    """A record of the tenant; the text names the life."""

    id: PrimaryKey[int]
    text: Indexed[str]


def opened(url: str) -> Database:
    """Return a database with the models of the tenant."""
    return Database(url, tenant_models=[Note], durability="relaxed")


def life_of(tenant: Database) -> str:
    """Return the text that names the life that a handle has seen."""
    tenant[Note].count()
    engine = tenant._engine
    assert isinstance(engine, PartEngine)
    life: Any = getattr(engine.gate.place.admit, "__self__")  # noqa: B009 - the object behind the method
    return f"life:{life._id}:"


def dump_of(life: str, key: int) -> io.BytesIO:
    """Return the dump of a store with one record."""
    with Database("memory://", models=[Note]) as other:
        other[Note].create(id=key, text=life)
        file = io.BytesIO()
        other.dump(file)
    file.seek(0)
    return file


WRITES: dict[str, Callable[[Database, str, int], object]] = {
    "create": lambda tenant, life, key: tenant[Note].create(id=key, text=life),
    "update": lambda tenant, life, key: tenant[Note].bulk_create([Note(id=key % 7, text=life)], on_conflict="update"),
    "bulk": lambda tenant, life, key: tenant[Note].bulk_create(
        [Note(id=1_000_000 + key * 4 + at, text=life) for at in range(4)], batch_size=2, resume_id=f"{life}{key}"
    ),
    "raw": lambda tenant, life, key: tenant.kv.set(("raw", key), life),
    "message": lambda tenant, life, key: tenant.kv.enqueue([life, key]),
    "lock": lambda tenant, life, key: tenant.kv.lock(f"{life}{key}", ttl=60).acquire(),
    "transaction": lambda tenant, life, key: tenant.transactional(0)(lambda tx: tx.kv.set((life, key), life))(),
    "load": lambda tenant, life, key: tenant.load(dump_of(life, 2_000_000 + key), on_conflict="ignore"),
    "build": lambda tenant, _, __: tenant.drop_index(Note, "text") and tenant.build_indexes(),
}


def write(url: str, tell: int, *, creates: bool, seed: int) -> None:
    """Write until the process is killed."""
    chance, keys = random.Random(seed), iter(range(seed * 100_000, (seed + 1) * 100_000))
    with opened(url) as db:
        while True:
            with suppress(TenantNotFoundError, TenantRemovedError):
                if creates:
                    db.create_tenant(NAME)
                tenant = db.tenant(NAME)
                life = life_of(tenant)
                while True:
                    name = chance.choice([*WRITES])
                    try:
                        WRITES[name](tenant, life, next(keys))
                    except (TenantNotFoundError, TenantRemovedError):
                        raise
                    except KvModelsError:
                        continue  # a build of another process, a taken key
                    os.write(tell, b".")
            os.write(tell, b"!")  # refused


def remove(url: str, *, seed: int) -> None:
    """Remove the tenant, and be killed before or after one of the commits."""
    chance = random.Random(seed)
    left, before = chance.randint(1, 3), chance.random() < 0.5

    def commit(operation: Any) -> Any:
        nonlocal left
        left -= 1
        if not left and before:
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = yield from effects.commit(operation)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    tenants.__dict__["commit"] = commit
    with opened(url) as db:
        db.remove_tenant(NAME)


def run(url: str, role: str, seed: int, tell: int) -> None:
    """Do the work of a role; ``tell``: where to say what was done."""
    if role == REMOVER:
        remove(url, seed=seed)
    else:
        write(url, tell, creates=role == CREATOR, seed=seed)


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.stdout.fileno())
