"""How many checks a server takes: 100 as Deno Deploy, or 10 as denokv, which the protocol does not tell.

Rules of this module: the server is asked once, when a database is opened, with an operation that cannot be applied.
"""

from __future__ import annotations

from typing import Final

from kvmodels.core.operations import AtomicWrite
from kvmodels.engines.connect.calls import call_commit
from kvmodels.engines.connect.exchange import Steps
from kvmodels.engines.connect.session import Attempts, Session
from kvmodels.engines.connect.settings import ConnectOptions
from kvmodels.engines.connect.wire.decoding import decode_atomic_write_output
from kvmodels.engines.connect.wire.encoding import encode_atomic_write
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.messages import AtomicWriteMessage, CheckMessage, WriteStatus
from kvmodels.errors import EngineError, LimitExceededError
from kvmodels.limits import Limits

_NEVER_GIVEN: Final = b"\xff" * 10
"""A versionstamp that no commit has."""

_KEY: Final = b"\x02__kvmodels__\x00\x02checks\x00"
_CHECKS: Final = Limits.DENOKV_SERVER.max_checks + 1


def limits_steps(session: Session, wanted: Limits | None, options: ConnectOptions) -> Steps[Limits]:
    """Return the limits of the server: ``Limits.DENO``, or those of denokv where it does not take eleven checks.

    Raises:
        EngineError, EngineTimeoutError: the metadata exchange failed.
    """
    attempts = Attempts(options.busy_timeout)
    yield from session.current(attempts)
    if options.readonly or (wanted is not None and wanted.max_checks < _CHECKS):
        return Limits.DENOKV_SERVER
    message = AtomicWriteMessage(checks=(CheckMessage(_KEY, _NEVER_GIVEN),) * _CHECKS)
    try:
        answered = yield from call_commit(session, encode_atomic_write(message), AtomicWrite(), attempts)
        status = decode_atomic_write_output(answered.body).status
    except (LimitExceededError, EngineError, WireError):
        return Limits.DENOKV_SERVER
    return Limits.DENO if status == WriteStatus.CHECK_FAILURE else Limits.DENOKV_SERVER
