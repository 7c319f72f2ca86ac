"""The errors of commits that foreign keys refuse.

Rules of this module: pure. Keys are shown in the form that callers write; values of fields are never shown.
"""

from __future__ import annotations

from kvmodels.core.keys import decode_key
from kvmodels.errors import IntegrityError, ProtectedError, ReferenceViolationError
from kvmodels.flows.hydration.rows import shown_key
from kvmodels.indexing.references import MissingTarget, RemainingReferrers


def refused_reference(refusal: MissingTarget | RemainingReferrers) -> IntegrityError:
    """Return the error for a commit that would leave a foreign key without its target."""
    change = refusal.change
    live = change.live
    key = shown_key(live.layout.unpack(change.pk))
    if isinstance(refusal, MissingTarget):
        reference = refusal.reference
        (part,) = decode_key(refusal.target)
        return ReferenceViolationError(
            "a foreign key names a record that does not exist, or that has a deadline",
            model=live.schema.name,
            field=reference.field,
            target=reference.layout.definition.columns[0].codec.unpack(part),
            collection=reference.collection,
            reason=refusal.reason,
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
