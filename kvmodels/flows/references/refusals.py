"""The errors of commits that foreign keys refuse.

Rules of this module: pure. Keys are shown in the form that callers write; values of fields are never shown.
"""

from __future__ import annotations

from typing import Any, Final

from kvmodels.errors import IntegrityError, ProtectedError, ReferenceViolationError
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.indexing.references import MissingTarget, RemainingReferrers

EXPIRES: Final = "expires"
"""The reason for a target that has a deadline."""

_MAKE_PERMANENT: Final = (
    "Make that record permanent first: save(record, expire_in=None). Or give the key of another record."
)


def missing_target(reason: str, **attributes: Any) -> ReferenceViolationError:
    """Return the error for a foreign key whose target does not exist, or has a deadline.

    Args:
        reason: ``"missing"`` or ``EXPIRES``.
        attributes: of the error; ``hint`` takes the place of the advice for a writer.
    """
    if reason != EXPIRES:
        return ReferenceViolationError(
            "a foreign key refers to a record that does not exist", reason=reason, **attributes
        )
    attributes.setdefault("hint", _MAKE_PERMANENT)
    return ReferenceViolationError("a foreign key refers to a record that has a deadline", reason=reason, **attributes)


def refused_reference(refusal: MissingTarget | RemainingReferrers) -> IntegrityError:
    """Return the error for a commit that would leave a foreign key without its target."""
    change = refusal.change
    live = change.live
    key = shown_key(live.layout.unpack(change.pk))
    if isinstance(refusal, MissingTarget):
        reference = refusal.reference
        return missing_target(
            refusal.reason,
            model=live.schema.name,
            field=reference.field,
            target=reference.target_in(refusal.target),
            collection=reference.collection,
            key=key,
        )
    referrer = refusal.referrer
    return ProtectedError(
        "other records refer to this one",
        model=live.schema.name,
        key=key,
        referrer=referrer.collection,
        field=referrer.field,
        keys=tuple(shown_key(referrer.records.unpack(pk)) for pk in refusal.keys),
    )
