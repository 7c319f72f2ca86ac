"""One raw write of a transaction: checked and packed as every atomic operation is, and handed over.

Rules of this module: nothing is sent; ``kv_transaction`` and ``kv_transaction_async`` share it.
"""

from __future__ import annotations

from kvmodels.flows import transaction as transaction_flows
from kvmodels.flows.requests import Flow
from kvmodels.kv_atomic import AtomicBuilder
from kvmodels.operations import Set

__all__ = ["TransactionWrite"]


class TransactionWrite(AtomicBuilder):
    """Built by the methods of its parent, then added to a transaction.

    Args:
        flows: the state of the transaction.
    """

    __slots__ = ("_flows",)

    def __init__(self, flows: transaction_flows.TransactionFlows) -> None:
        flows.require_open()
        super().__init__(flows.form)
        self._flows = flows

    def added(self) -> Flow[None]:
        """Hand mutations and messages over; a lifetime begins with the transaction."""
        yield from ()  # a flow, so that a write takes its turn among what else runs in the transaction
        built = self._take()
        for position, mutation in enumerate(built.mutations):
            lifetime = built.lifetimes.get(position)
            if lifetime is not None and isinstance(mutation, Set):
                self._flows.write(mutation._replace(expire_at=self._flows.now_ms + lifetime))
            else:
                self._flows.write(mutation)
        for message in built.messages:
            self._flows.enqueue(message)

    def checks(self) -> Flow[None]:
        """Hand checks over."""
        for check in self._take().checks:
            yield from self._flows.check(check.key, check.versionstamp)
