"""Claims to a lock, for tests that drive the flows of a lock themselves."""

from __future__ import annotations

import time
from collections.abc import Callable

from kvmodels.api.opening import store_format
from kvmodels.engines.memory.engine import MEMORY_TRAITS
from kvmodels.flows.kv.leases import Leases
from kvmodels.flows.kv.lock import LockClaim
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.limits import Traits

FORM = store_format("msgpack")


def claim_of(
    owner: str,
    lease_ms: int = 15_000,
    *,
    form: StoreFormat = FORM,
    name: str = "a",
    traits: Traits = MEMORY_TRAITS,
    monotonic: Callable[[], float] = time.monotonic,
) -> LockClaim:
    """Return a claim of a waiter that has seen no lease yet."""
    leases = Leases(traits, monotonic)
    return LockClaim(form, name, owner, lease_ms, leases=leases, numbered=not traits.versionstamped_keys)
