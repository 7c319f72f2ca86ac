"""Answers of a KV Connect server as errors of this library.

Rules of this module: a token is never shown, also where a server repeats it in its answer. What a server says is the
``reason`` of an error, cut to a line; the error is chosen by the status and by the texts of denokv, which Deno shares.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import Final, NamedTuple
from urllib.parse import quote, quote_plus

from kvmodels.core.operations import Arithmetic, AtomicWrite, not_a_number
from kvmodels.engines.connect.exchange import HttpAnswer
from kvmodels.engines.shared.server_errors import (
    LACKING,
    REFUSED,
    TAKES_NO_WRITES,
    UNREACHABLE,
    WRONG_CREDENTIALS,
    shortened,
)
from kvmodels.errors import (
    EngineError,
    EngineTimeoutError,
    KeyTooLargeError,
    KvModelsError,
    LimitExceededError,
    OperationTooLargeError,
    UnsupportedError,
    ValueTooLargeError,
)

_LIMITS: Final[tuple[tuple[str, type[LimitExceededError], str], ...]] = (
    ("A key exceeds the key size limit", KeyTooLargeError, "max_key_bytes"),
    ("Key too large", KeyTooLargeError, "max_key_bytes"),
    ("A value exceeds the value size limit", ValueTooLargeError, "max_value_bytes"),
    ("Value too large", ValueTooLargeError, "max_value_bytes"),
    ("Too many checks", OperationTooLargeError, "max_checks"),
    ("Too many mutations", OperationTooLargeError, "max_mutations"),
    ("The total size of the atomic write", OperationTooLargeError, "max_operation_bytes"),
    ("Total mutation size", OperationTooLargeError, "max_operation_bytes"),
    ("Total key size", OperationTooLargeError, "max_operation_key_bytes"),
    ("Too many read ranges", OperationTooLargeError, "max_ranges"),
    ("Too many ranges", OperationTooLargeError, "max_ranges"),
    ("The total number of entries", OperationTooLargeError, "max_read_entries"),
    ("Too many entries", OperationTooLargeError, "max_read_entries"),
)
"""Beginnings of the texts of denokv and of Deno about limits."""

_NOT_A_NUMBER: Final = re.compile(
    r"Failed to perform '(?:sum|min|max)' mutation on a non-U64|Cannot sum|unsupported value"
)
_READ_ONLY: Final = "This database is read only"
_NO_MODEL_WRITES: Final = "The atomic write changes keys of a model"
_REFUSED_HINT: Final = "Check the access token: the console of Deno or the operator of the server has it."


class MissingCapability(NamedTuple):
    """A capability that KV Connect does not have: its name in errors, and what a program can do instead."""

    name: str
    advice: str = ""


_KEYS_CAN_BE_WATCHED: Final = (
    "Keys can be watched: kv.watch([...]). For prefixes and records use SQLite, LMDB or PostgreSQL. "
)
SNAPSHOTS: Final = MissingCapability(
    "snapshots over several reads", "Up to 10 keys are read in one state by kv.get_many(). "
)
NOTICES: Final = MissingCapability("notices of commits", _KEYS_CAN_BE_WATCHED)
CHANGE_LOG: Final = MissingCapability("a change log", _KEYS_CAN_BE_WATCHED)
BACKUPS: Final = MissingCapability("backups", "Back up the store where it is served. ")
FOLLOWING_READS: Final = MissingCapability("reads that follow from others in their snapshot")


def not_in_connect(url: str, missing: MissingCapability) -> UnsupportedError:
    """Return the error for a call that needs what KV Connect does not have."""
    hint = f"{missing.advice}Other engines have it: docs/guides/engines.md has the table."
    return LACKING.of(url, missing.name, hint)


def _text_of(answer: HttpAnswer, *secrets: str) -> str:
    """Return what a server says in an answer, in one line and without secrets."""
    # Secrets first: a cut would leave a part of one.
    text = without_secrets(answer.body.decode("utf-8", "replace"), *secrets)
    return shortened(" ".join(text.split()))


def without_secrets(text: str, *secrets: str) -> str:
    """Return a text without secrets, also as URLs, JSON and HTML write them."""
    for secret in secrets:
        inside_json = json.dumps(secret)[1:-1]
        forms = (secret, quote(secret, safe=""), quote(secret), quote_plus(secret), inside_json)
        for form in {*forms, inside_json.replace("/", "\\/"), escape(secret), escape(inside_json)}:
            text = re.sub(re.escape(form), "***", text, flags=re.IGNORECASE)  # a server may write %2f for %2F
    return text


def refused(url: str, answer: HttpAnswer, *secrets: str, write: AtomicWrite | None = None) -> KvModelsError:
    """Return the error for an answer with which the server has refused a request; nothing was applied.

    Args:
        url: of the database, for the message.
        answer: has a status of 400 to 499.
        secrets: must not be shown.
        write: what was refused, if it was a commit.
    """
    text = _text_of(answer, *secrets)
    reason = f"status {answer.status}: {text}" if text else f"status {answer.status}"
    if answer.status in (401, 403):
        return WRONG_CREDENTIALS.of(url, reason, _REFUSED_HINT)
    if text.startswith(_READ_ONLY):
        return TAKES_NO_WRITES.of(url, text, "Use a token that may write.")
    if text.startswith(_NO_MODEL_WRITES):
        return EngineError(
            "the server does not let this token write models",
            url=url,
            reason=text,
            hint="Start kvmodels serve with --allow-model-writes, or give the token AccessToken(model_writes=True).",
        )
    for beginning, error, limit in _LIMITS:
        if text.startswith(beginning):
            return error(
                "the server refuses the size of a request", limit=limit, limits="the server", hint=f"It says: {text}"
            )
    if write is not None and _NOT_A_NUMBER.match(text):
        keys = [one.key for one in write.mutations if isinstance(one, Arithmetic)]
        return not_a_number(keys[0] if len(keys) == 1 else None)
    return REFUSED.of(url, reason, "Check that the URL is that of a database.")


def refused_redirect(url: str, location: str, *secrets: str) -> EngineError:
    """Return the error for a redirect that is not followed, because the token would go with it."""
    return _foreign(
        "the server redirects to another address, to which the token is not sent",
        url,
        reason=shortened(without_secrets(location.partition("?")[0], *secrets)),
        hint="Open the database with the address that the server redirects to, if you trust it.",
    )


def not_a_database(url: str, reason: str) -> EngineError:
    """Return the error for metadata that cannot be understood."""
    return _foreign(
        "this URL is not that of a KV Connect database",
        url,
        reason=reason,
        hint="Give the URL that a Deno program gives to Deno.openKv().",
    )


def wrong_answer(url: str, reason: str) -> EngineError:
    """Return the error for an answer to a read that cannot be understood."""
    return _foreign(
        "the server's answer is not one of KV Connect",
        url,
        reason=reason,
        hint="Check that no proxy changes the answers.",
    )


def busy(url: str, reason: str) -> EngineTimeoutError:
    """Return the error for a request that was tried until its time was over; nothing was applied."""
    hint = "Check the URL and whether the server is running and reachable; if it is busy, raise busy_timeout=."
    return UNREACHABLE.of(url, reason, hint)


def _foreign(message: str, url: str, *, reason: str, hint: str) -> EngineError:
    """Return the error for an answer of a server that does not follow the protocol; the reason quotes it."""
    return EngineError(message, url=url, reason=shortened(reason), hint=hint)
