"""A store driven at random through schema versions, beside a dict: upgrades, builds, drops, transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from kvmodels import (
    AlreadyExistsError,
    Database,
    DecodeError,
    DoesNotExist,
    F,
    IndexNotReadyError,
    SchemaMismatchError,
    Sum,
)
from kvmodels.flows.effects import Commit
from kvmodels.flows.evolution.throttle import UNPACED
from kvmodels.runtime.sync import perform
from tests.oracle import audit, read_engine, spec_of
from tests.stateful.cards import RELEASES, upgraded

KEYS = st.integers(0, 5)
HITS = st.integers(0, 3)
GROUPS = st.sampled_from(["x", "y"])
WRITES = st.one_of(
    st.tuples(st.just("create"), KEYS, HITS),
    st.tuples(st.just("hit"), KEYS, HITS),
    st.tuples(st.just("move"), KEYS, HITS),
    st.tuples(st.just("remove"), KEYS, HITS),
)
stores = count(1)

Record = tuple[dict[str, Any], int]
"""Fields, and the schema version of the release that wrote them."""


class Aborted(Exception):
    """Raised in a transaction, to end it."""


class Evolution(RuleBasedStateMachine):
    """One store and the release that runs on it; each record of the dict knows the schema version that wrote it."""

    ran: ClassVar[Counter[str]]

    @staticmethod
    def new_url(number: int) -> str:
        """A store that nobody has used."""
        raise LookupError(number)

    def __init__(self) -> None:
        super().__init__()
        self.url = self.new_url(next(stores))
        self.version = self.stored_version = 1
        self.complete = True
        self.records: dict[int, Record] = {}
        self.db = self._open(1)

    def _open(self, version: int) -> Database:
        return Database(self.url, models=[RELEASES[version - 1]])

    def _reopen(self) -> None:
        """Another process, which begins before the one that was there ends, or nothing would be left in memory."""
        before, self.db = self.db, self._open(self.version)
        before.close()
        header: Any = self.db.kv.get(("__kvmodels__", "header")).value
        self.stored_version = header["collections"]["cards"]["schema_version"]

    @property
    def model(self) -> Any:
        return RELEASES[self.version - 1]

    @property
    def cards(self) -> Any:
        return self.db[self.model]

    def expected(self) -> dict[int, dict[str, Any]]:
        """Every record, as the present release reads it."""
        return {key: upgraded(*self.records[key], self.version) for key in sorted(self.records)}

    def new(self, key: int, hits: int) -> dict[str, Any]:
        """Values of a record that no other can have; what a new release stores is in its own form."""
        text = "remark" if self.version == 4 else "note"
        code = f"Code{key}" if self.version == 1 else f"code{key}"
        return {"id": key, "code": code, "group": "xy"[key % 2], "hits": hits, text: f"t{hits}"}

    def allowed(self, write: Callable[[], Any]) -> bool:
        """Carry out a write; False where the store is not brought up yet, and the release must say so."""
        if self.stored_version == self.version:
            write()
            return True
        try:
            write()
        except SchemaMismatchError:
            self.ran["refused before it was brought up"] += 1
            return False
        raise AssertionError("a release wrote before the schema version was raised")

    @initialize(keys=st.sets(KEYS))
    def begin(self, keys: set[int]) -> None:
        """Most examples begin with some records of the first release."""
        for key in sorted(keys):
            self.write(("create", key, key % 4))

    # --- writes -----------------------------------------------------------------------------------------------

    def _write(self, cards: Any, records: dict[int, Record], verb: str, key: int, hits: int) -> None:
        """One write, and what becomes of the records, which are all read as the present release has them."""
        self.ran[verb] += 1
        held = upgraded(*records[key], self.version) if key in records else None
        if verb == "create":
            fields = self.new(key, hits)
            try:
                cards.create(**fields)
                assert held is None, "a record was created twice"
            except AlreadyExistsError:
                assert held is not None, "refused without a reason"
                return
        elif verb == "remove":
            assert cards.remove(key) is (held is not None)
            records.pop(key, None)
            return
        else:
            fields = {**(held or {}), **({"hits": hits} if verb == "hit" else {"group": "yx"[hits % 2]})}
            try:
                cards.patch(key, **{"hits" if verb == "hit" else "group": fields["hits" if verb == "hit" else "group"]})
                assert held is not None, "an absent record was changed"
            except DoesNotExist:
                assert held is None, "a record was not found"
                return
        records[key] = fields, self.version

    @rule(write=WRITES)
    def write(self, write: tuple[str, int, int]) -> None:
        records = dict(self.records)
        if self.allowed(lambda: self._write(self.cards, records, *write)):
            self.records = records

    @rule(writes=st.lists(WRITES, min_size=1, max_size=4), aborted=st.booleans(), group=GROUPS)
    def transaction(self, writes: list[tuple[str, int, int]], aborted: bool, group: str) -> None:
        """Several writes and a look at them, in one commit or none."""
        if self.stored_version != self.version:
            return
        records = dict(self.records)
        try:
            with self.db.transaction() as tx:
                for write in writes:
                    self._write(tx[self.model], records, *write)
                seen = {card.id: card.model_dump() for card in tx[self.model].all()}
                assert seen == {key: upgraded(*records[key], self.version) for key in sorted(records)}
                self._ask(tx[self.model], seen, group)
                if aborted:
                    raise Aborted
            self.records = records
            self.ran["transaction"] += 1
        except Aborted:
            self.ran["transaction aborted"] += 1

    @rule(group=GROUPS, size=st.sampled_from([None, 1, 2]), again=st.booleans())
    def update(self, group: str, size: int | None, again: bool) -> None:
        """A bulk update through an index that it changes, and its repetition."""
        if self.stored_version != self.version:
            return
        name = f"update {self.ran['bulk update']}"
        chosen = {key: fields for key, fields in self.expected().items() if fields["group"] == group}
        query = self.cards.filter(group=group)
        for _ in range(1 + again):
            result = query.update(hits=F("hits") + 1, batch_size=size, resume_id=name)
            assert (result.matched, result.written) == (len(chosen), len(chosen))
        self.records |= {key: ({**fields, "hits": fields["hits"] + 1}, self.version) for key, fields in chosen.items()}
        self.ran["bulk update"] += 1

    # --- releases ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.version < len(RELEASES))
    @rule(skipped=st.booleans())
    def deploy(self, skipped: bool) -> None:
        """The next release, or the one after it, whether or not the store was migrated to this one."""
        self.version = min(self.version + 1 + skipped, len(RELEASES))
        self._reopen()
        self.complete = False
        self.ran["deploy"] += 1
        self.write(("hit", 0, 1))

    def _raised(self) -> None:
        self.stored_version = self.version

    @precondition(lambda self: not self.complete)
    @rule()
    def apply(self) -> None:
        """Everything that brings the store to the release."""
        assert self.db.apply().complete
        self._raised()
        assert self.db.plan().is_current
        self._migrated()
        self.ran["apply"] += 1

    @precondition(lambda self: not self.complete)
    @rule()
    def migrate(self) -> None:
        assert self.db.migrate(self.model).complete
        self._raised()
        self._rewritten()
        self.ran["migrate"] += 1

    def _rewritten(self) -> None:
        """Every record is of the present version, in the store too."""
        for entry in self.db.kv.list(prefix=("cards",)):
            assert entry.value.get("$kv", {}).get("v", 1) == self.version
        self.records = {key: (fields, self.version) for key, fields in self.expected().items()}

    def _migrated(self) -> None:
        self._rewritten()
        self.complete = True

    @precondition(lambda self: not self.complete)
    @rule(commits=st.integers(0, 6), applied=st.booleans())
    def cut_off(self, commits: int, applied: bool) -> None:
        """A process that dies at one of its commits, before it or behind it."""
        core = self.db._core
        flow = core.apply((self.model,), (), UNPACED)
        try:
            request = next(flow)
            while commits or not isinstance(request, Commit):
                commits -= isinstance(request, Commit)
                request = flow.send(perform(self.db._engine, request))
            if applied:
                perform(self.db._engine, request)
            flow.close()
        except StopIteration:
            self._migrated()
        self._reopen()
        self.ran["cut off"] += 1

    @rule(name=st.sampled_from(["group", "ranking", "totals", "board"]))
    def drop_and_build(self, name: str) -> None:
        if not self.complete:
            return
        assert self.db.drop_index(self.model, name)
        self.db.build_indexes()
        self.ran["drop and build"] += 1

    @precondition(lambda self: self.stored_version > 1)
    @rule(key=KEYS)
    def old_release(self, key: int) -> None:
        """The first release may not write any more, and reads what it understands."""
        with self._open(1) as old:
            first = RELEASES[0]
            try:
                old[first].save(first(id=key, code=f"Code{key}"), force=True)
            except (SchemaMismatchError, DecodeError):
                self.ran["old release refused"] += 1
            else:
                raise AssertionError("an older release wrote")
            if key in self.records:
                try:
                    assert old[first].get(key).model_dump() == self.records[key][0]
                except DecodeError:
                    self.ran["newer than the old release reads"] += 1

    # --- reads ------------------------------------------------------------------------------------------------

    @rule(group=GROUPS)
    def read(self, group: str) -> None:
        found = {card.id: card.model_dump() for card in self.cards.all()}
        assert found == self.expected()
        self._ask(self.cards, found, group)
        self.ran["read"] += 1

    def _ask(self, cards: Any, everybody: dict[int, dict[str, Any]], group: str) -> None:
        """Through every index: the right answer, or a refusal while records wait for their upgrade."""
        members = {key: fields for key, fields in everybody.items() if fields["group"] == group}
        ranked = sorted(members, key=lambda key: (-members[key]["hits"], key))
        questions: list[tuple[Callable[[], Any], Any]] = [
            (lambda: sorted(card.id for card in cards.filter(group=group)), sorted(members)),
            (lambda: [card.id for card in cards.filter(group=group).order_by("-hits")], ranked),
            (lambda: [card.id for card in cards.rank("board", group=group)[:]], ranked),
            (
                lambda: [cards.rank("board", group=group).position_of(key) for key in sorted(everybody)],
                [ranked.index(key) if key in members else None for key in sorted(everybody)],
            ),
            (
                lambda: cards.rank("board", group=group).rank(hits=2),
                1 + sum(one["hits"] > 2 for one in members.values()),
            ),
            (
                lambda: cards.filter(group=group).aggregate(total=Sum("hits"))["total"],
                sum(one["hits"] for one in members.values()) if members else None,
            ),
            (
                lambda: sorted(card.id for card in cards.filter(hits__gte=2)),
                sorted(key for key, one in everybody.items() if one["hits"] >= 2),
            ),
        ]
        questions += [(partial(cards.get, code=one["code"]), cards.get(one["id"])) for one in [*everybody.values()][:2]]
        for ask, wanted in questions:
            try:
                assert ask() == wanted
            except IndexNotReadyError:
                assert not self.complete, "an index is not ready although everything was applied"
                self.ran["index not ready"] += 1

    @rule()
    def check(self) -> None:
        assert self.db.check().findings == ()
        self.ran["check"] += 1

    def teardown(self) -> None:
        if not self.complete:
            self.apply()
        self.read("x")
        self.check()
        assert audit(read_engine(self.db._engine), [spec_of(self.model)]) == []
        self.db.close()
