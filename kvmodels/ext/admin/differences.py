"""Two values of a field side by side, as pieces of text with those marked that only one of them has.

Rules of this module: the work is bounded, whatever the texts are; nothing here returns markup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from kvmodels._support.visible import visible
from kvmodels.ext.admin.texts import value_text

_MOST_WORDS: Final = 400
"""The most words that are compared one by one; a longer part counts as changed as a whole."""

_LONGEST_ALIKE: Final = 160
"""The most characters that are shown of a part that both values have."""

_LONGEST: Final = 2_000
"""The most characters that are shown of any part."""

_WORDS: Final = re.compile(r"\w+|\s+|[^\w\s]")


class ComparedPart(NamedTuple):
    """A part of a value: its text, and whether only this value has it."""

    text: str
    changed: bool


class Difference(NamedTuple):
    """A field with its values before and after a change.

    Attributes:
        name: the field.
        before, after: the parts of the values; None for a value that is None.
    """

    name: str
    before: tuple[ComparedPart, ...] | None
    after: tuple[ComparedPart, ...] | None


def difference(name: str, before: Any, after: Any) -> Difference:
    """Return the two values of a field with the parts marked that differ.

    Examples:
        >>> found = difference("title", "a red house", "a blue house")
        >>> [piece.text for piece in found.before if piece.changed], [one.text for one in found.after if one.changed]
        (['red'], ['blue'])
    """
    if before is None or after is None:
        return Difference(name, _whole(before), _whole(after))
    return Difference(name, *_compared(_WORDS.findall(value_text(before)), _WORDS.findall(value_text(after))))


def _whole(value: Any) -> tuple[ComparedPart, ...] | None:
    return None if value is None else (_part([value_text(value)], changed=True),)


def _compared(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[ComparedPart, ...], tuple[ComparedPart, ...]]:
    """Return the parts of two lists of words; what both begin and end with is not compared word by word."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    end = next((at for at in range(shorter - start) if old[-1 - at] != new[-1 - at]), shorter - start)
    middle = old[start : len(old) - end], new[start : len(new) - end]
    if max(map(len, middle)) <= _MOST_WORDS:
        parts = SequenceMatcher(None, *middle, autojunk=False).get_opcodes()
    else:
        parts = [("replace", 0, len(middle[0]), 0, len(middle[1]))]
    before, after = [_part(old[:start], changed=False)], [_part(new[:start], changed=False)]
    for kind, old_start, old_end, new_start, new_end in parts:
        before.append(_part(middle[0][old_start:old_end], changed=kind != "equal"))
        after.append(_part(middle[1][new_start:new_end], changed=kind != "equal"))
    before.append(_part(old[len(old) - end :], changed=False))
    after.append(_part(new[len(new) - end :], changed=False))
    return tuple(one for one in before if one.text), tuple(one for one in after if one.text)


def _part(words: Sequence[str], *, changed: bool) -> ComparedPart:
    text = "".join(words)
    most = _LONGEST if changed else _LONGEST_ALIKE
    if len(text) > most:
        text = f"{text[: most // 2]} … {text[-(most // 2) :]}"
    return ComparedPart(visible(text), changed)
