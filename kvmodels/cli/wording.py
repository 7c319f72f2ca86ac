"""The hints of the library in terms of the command line: a command or an option in place of a Python call.

Rules of this module: one table; the library knows nothing of the command. Only errors and findings are reworded, never
data of the store.
"""

from __future__ import annotations

import re
from typing import Final

_IN_A_PROGRAM: Final = "in a program, and name its database as module:object"

COMMANDS: Final[tuple[tuple[str, str], ...]] = (
    (
        "print(db.plan()) shows what each step needs; allow= permits the steps that have a name for it.",
        "kvmodels plan shows what each step needs; --allow NAME permits the steps that have a name for it.",
    ),
    (
        'Give names in a tuple: allow=("drop_index",). print(db.plan()) shows which steps need one.',
        "Give --allow NAME, once for each. kvmodels plan shows which steps need one.",
    ),
    ("open_kv(url).load(file, restart=True)", "kvmodels load FILE --restart"),
    ("load with restart=True", "give --restart"),
    ("which db.load() reads", "which load --into-used reads"),
    ("call .allow_scan()", "give --scan"),
    ("allow_scan()", "--scan"),
    ("call .sort_in_memory(limit=…)", "give --sort-in-memory N"),
    ("sort_in_memory(limit=…)", "--sort-in-memory N"),
    ('db.check(repair="all")', "kvmodels check --repair=all"),
    ("db.check(repair=True)", "kvmodels check --repair"),
    ("in a program that declares the model of this collection", "-d module:object, with a database that declares it"),
    ("db.apply()", "kvmodels apply"),
    ("db.build_indexes()", "kvmodels apply"),
    ("db.load(file)", "kvmodels load FILE --into-used"),
    (
        "Open it with change_log=, the seconds for which it is kept.",
        "A program switches it on: Database(url, change_log=3600).",
    ),
    (
        "Pass next_cursor of a page of the same query, unchanged, or None to start again.",
        "Give --after as the last command has printed it, with the same conditions, or leave it out.",
    ),
    ("datetime.now(UTC)", "2026-01-31T12:00Z"),
    (", or use get_or_none()", ""),
    ("get(existing_key)", "its primary key is existing_key"),
    ("open the store with allow_lossy_server=True", f"open it with allow_lossy_server=True {_IN_A_PROGRAM}"),
    ("then open it once with accept_restore=True", f"then open it once with accept_restore=True {_IN_A_PROGRAM}"),
    (", or open it once with create=True and readonly=False", "; load, restore and copy create a store"),
    ("Give user= and password=, or set ETCDCTL_USER and ETCDCTL_PASSWORD", "Set ETCDCTL_USER and ETCDCTL_PASSWORD"),
    ("Give password=, or set ETCDCTL_PASSWORD", "Set ETCDCTL_PASSWORD"),
    ("and cacert=, cert= and key=", "and ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY"),
)
"""Phrases of hints, and what they are on the command line; a phrase comes before a shorter one that it contains."""

_ALLOW: Final = re.compile(r"\[allow='(\w+)'\]")
"""The name that permits a step of a plan."""


def in_commands(text: str) -> str:
    """Return the text of an error or a finding, with commands and options in place of Python calls.

    Examples:
        >>> in_commands("Run db.apply(), or call .allow_scan() until then.")
        'Run kvmodels apply, or give --scan until then.'
    """
    for call, command in COMMANDS:
        text = text.replace(call, command)
    return _ALLOW.sub(r"[--allow \1]", text)
