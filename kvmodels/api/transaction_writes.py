"""One raw write of a transaction: checked and packed as every atomic operation is, and handed over.

Rules of this module: nothing is sent; ``kv_transaction`` and ``kv_transaction_async`` share it.
"""

from __future__ import annotations

from kvmodels.api.atomic import AtomicBuilder
from kvmodels.core.operations import AtomicWrite, Set
from kvmodels.flows.effects import Flow
from kvmodels.flows.kv.operations import PendingWrite
from kvmodels.flows.kv.store_format import StoreFormat
from kvmodels.flows.transaction import transaction as transaction_flows
from kvmodels.indexing.budget import check_budget


class TransactionWrite(AtomicBuilder):
    """Built by the methods of its parent, then added to a transaction.

    Args:
        flows: the state of the transaction.
        form: packs keys and values, of the store or of a namespace.
    """

    __slots__ = ("_confined", "_flows")

    def __init__(self, flows: transaction_flows.TransactionFlows, form: StoreFormat) -> None:
        flows.require_open()
        super().__init__(form)
        self._flows = flows
        self._confined = form

    def added(self) -> Flow[None]:
        """Hand mutations and messages over; a lifetime begins with the transaction."""
        yield from ()  # a flow, so that a write takes its turn among what else runs in the transaction
        built = self._take()
        self._require_limits(built)
        for position, mutation in enumerate(built.mutations):
            lifetime = built.lifetimes.get(position)
            if lifetime is not None and isinstance(mutation, Set):
                self._flows.write(mutation._replace(expire_at=self._flows.now_ms + lifetime))
            else:
                self._flows.write(mutation)
        for message in built.messages:
            self._flows.enqueue(message, self._confined)

    def _require_limits(self, built: PendingWrite) -> None:
        """Measure what the limits of a namespace hold for; those of the store are measured at the commit."""
        if self._confined.limits is None:
            return
        limits = self._confined.limits_within(self._flows.limits)
        letters = tuple(letter for message in built.messages for letter in message.dead_letters)
        for part in (*built.mutations, *letters):
            self._confined.check_key_runes(part.key, limits)
        check_budget(AtomicWrite(mutations=(*built.mutations, *letters)), limits)

    def checks(self) -> Flow[None]:
        """Hand checks over."""
        for check in self._take().checks:
            yield from self._flows.check(check.key, check.versionstamp)
