"""Claims to a lock, for tests that drive the flows of a lock themselves."""

from __future__ import annotations

from collections.abc import Callable

from kvmodels.engines.contract import Engine
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.lock import LockClaim
from kvmodels.flows.kv.store_format import StoreFormat
from tests.store_codecs import form_of


def claim_of(
    engine: Engine,
    owner: str,
    lease_ms: int = 15_000,
    *,
    form: StoreFormat | None = None,
    name: str = "a",
    monotonic: Callable[[], float] | None = None,
) -> LockClaim:
    """Return a claim of a waiter that has seen no lease yet; its own clock is that of the engine by default."""
    traits = engine.capabilities.traits
    leases = Leases(traits, monotonic or (lambda: engine.now_ms() / 1000 + 0.0005))
    return LockClaim(
        form or form_of(engine), name, owner, lease_ms, leases=leases, numbered=not traits.versionstamped_keys
    )
