"""Schedules for the rules of partial, computed, multi-valued and covering indexes and of counters, step by step."""

from __future__ import annotations

from collections.abc import Iterator

from kvmodels import Index, IndexChangedError, IndexNotReadyError, OperationTooLargeError, UniqueViolationError
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.exchange import exchange
from tests.interleaving.members import KEPT, Home, Member, MemberFields, OldMember
from tests.interleaving.scenes import Judge, Scene, build, nothing_more
from tests.interleaving.verdict import records_of
from tests.oracle import spec_of

SPEC = spec_of(Member)
OLD_SPEC = spec_of(OldMember)


def other_label(team: str, zone: str) -> str:
    """A function of the next release with other values under the same version, which its author forgot to raise."""
    return f"{team} of {zone}"


class Relabelled(MemberFields, collection="people"):
    """The running release with another function in it."""

    class Meta:
        indexes = tuple(
            Index("team", "zone", key=other_label, version=1, name="label") if index.name == "label" else index
            for index in KEPT
        )


RELABELLED_SPEC = spec_of(Relabelled)


def members(test: Interleaving, dropped: tuple[str, ...], *records: Member) -> Process:
    """A process of the later release with these records, which were stored while some indexes were away."""
    process = test.process(Member)
    for name in dropped:
        test.at_once(process.drop_index(Member, name))
    for record in records:
        test.at_once(process[Member].insert(record))
    return process


def a_member_moves_before_the_build_has_counted_it(test: Interleaving) -> Judge:
    """Bob moves his record to another zone: it was never counted in the old one."""
    bob = members(test, ("per_zone",), Member(id="b", zone="n"))
    test.add("build", build(test.process(Member), "per_zone", Member))
    test.add("bob", bob[Member].patch("b", zone="s"))
    return nothing_more


def a_member_is_removed_before_the_build_has_counted_it(test: Interleaving) -> Judge:
    """Nothing is left to count, and nothing was."""
    bob = members(test, ("per_zone",), Member(id="b", zone="n", hits=5))
    test.add("build", build(test.process(Member), "per_zone", Member))
    test.add("bob", bob[Member].remove("b"))
    return nothing_more


def mended(history: StepHistory) -> Iterator[str]:
    """Ada could change her record so that the index can hold it."""
    if history.outcomes["ada"].error is not None:
        yield f"the record could not be mended: {history.outcomes['ada'].error}"


def a_listed_member_is_touched_by_another_build_and_then_mended(test: Interleaving) -> Judge:
    """Its note has more parts than the counters of parts take; the other build lifts it above the fence even so."""
    ada = members(test, ("part", "per_part", "per_zone"), Member(id="a", note="p q r s"))
    test.at_once(build(ada, "per_part", Member))
    test.at_once(build(ada, "per_zone", Member))
    test.add("ada", ada[Member].patch("a", note="p q"))
    return mended


def a_member_with_a_long_part_is_touched_by_another_build_and_then_mended(test: Interleaving) -> Judge:
    """Of the two parts of its note one is too long for a key; the other one stays, and has no entry yet."""
    ada = members(test, ("part", "per_part", "per_zone"), Member(id="a", note=f"p {'q' * 3_000}"))
    test.at_once(build(ada, "part", Member))
    test.at_once(build(ada, "per_zone", Member))
    test.add("ada", ada[Member].patch("a", note="p q"))
    return mended


def a_member_is_mended_before_the_build_lists_it(test: Interleaving) -> Judge:
    """The build has read four parts, which are too many; when it lists the member there is an entry of one part."""
    ada = members(test, ("part", "per_part"), Member(id="a", note="p q r s"))
    test.add("build", build(test.process(Member), "part", Member))
    test.add("ada", ada[Member].patch("a", note="p"))
    test.add("bob", ada[Member].patch("a", note="q"))
    return nothing_more


def a_build_counts_what_is_there(test: Interleaving) -> Judge:
    """Two records of one zone, and one that the condition leaves out."""
    cities = {"a": "x", "b": "y", "c": "z"}
    members(test, ("per_zone",), *(Member(id=name, city=city, hits=3) for name, city in cities.items()))
    test.add("build", build(test.process(Member), "per_zone", Member))
    return nothing_more


def one_commit_adds_twice_to_one_group(test: Interleaving) -> Judge:
    """Two records of one city in one batch."""
    ada = test.process(OldMember)
    batch = [OldMember(id="a", hits=2, tags=["t"]), OldMember(id="b", hits=3, tags=["t"])]
    test.add("ada", ada[OldMember].bulk_create(batch))
    return nothing_more


def one_commit_takes_a_member_out_of_its_group_and_adds_it_again(test: Interleaving) -> Judge:
    """The city stays, the number changes."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", hits=2))
    test.add("ada", ada[OldMember].patch("a", hits=5))
    return nothing_more


def a_member_has_an_element_twice(test: Interleaving) -> Judge:
    """It is one member of the group."""
    ada = test.process(OldMember)
    test.add("ada", ada[OldMember].create(id="a", tags=["t", "u", "t"]))
    return nothing_more


def only_an_included_field_changes(test: Interleaving) -> Judge:
    """The key of the entry stays."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", note="one"))
    test.add("ada", ada[OldMember].patch("a", note="two"))
    return nothing_more


def only_an_included_field_of_slots_changes(test: Interleaving) -> Judge:
    """The slots stay those of the member."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", badges=["b1", "b2"], zone="s"))
    test.add("ada", ada[OldMember].patch("a", team="blue"))
    return nothing_more


def a_member_comes_under_the_condition(test: Interleaving) -> Judge:
    """The team stays as it is, but the entry was not there."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", zone="s"))
    test.add("ada", ada[OldMember].patch("a", zone="n"))
    return nothing_more


def a_release_with_another_function_writes_over_an_old_entry(test: Interleaving) -> Judge:
    """Only the record knows by which value it is indexed."""
    old, new = test.process(OldMember), test.process(Relabelled)
    test.at_once(old[OldMember].create(id="a", team="red"))
    test.add("new", new[Relabelled].patch("a", team="blue"))
    return nothing_more


def an_element_goes(test: Interleaving) -> Judge:
    """Its slot and its entry go, those of the other one stay; somebody else gets the badge."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", tags=["t", "u"], badges=["b1", "b2"]))
    test.add("ada", ada[OldMember].patch("a", tags=["u"], badges=["b2"]))
    test.add("bob", ada[OldMember].create(id="b", badges=["b1"]))

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes["bob"].error is not None:
            yield f"the badge is not free: {history.outcomes['bob'].error}"

    return judge


def two_members_exchange_their_badges(test: Interleaving) -> Judge:
    """Of two sets of slots each passes to the other record in one commit; one badge both ways would be refused."""
    ada = test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", badges=["b1", "b2"]))
    test.at_once(ada[OldMember].create(id="b", badges=["b3"]))
    test.add("ada", ada.run(exchange(ada.context, ada.schema(OldMember), "a", "b", "badges")))

    def judge(history: StepHistory) -> Iterator[str]:
        records = records_of(test.engine)
        if [records[name]["badges"] for name in "ab"] != [["b3"], ["b1", "b2"]]:
            yield f"the exchange ended with {history.outcomes['ada']}"

    return judge


def two_creates_claim_one_badge(test: Interleaving) -> Judge:
    """One of several badges is the same."""
    ada, bob = test.process(OldMember), test.process(OldMember)
    test.add("ada", ada[OldMember].create(id="a", badges=["b1", "b2"]))
    test.add("bob", bob[OldMember].create(id="b", badges=["b3", "b2"]))

    def judge(history: StepHistory) -> Iterator[str]:
        error = history.outcomes["bob"].error
        if not isinstance(error, UniqueViolationError) or error.values != ("b2",) or error.existing_key != "a":
            yield f"the second create ended with {history.outcomes['bob']}"

    return judge


def two_creates_claim_addresses_that_are_folded_to_one(test: Interleaving) -> Judge:
    """Neither reads anything: the texts differ, their folded values do not."""
    ada, bob = test.process(OldMember), test.process(OldMember)
    test.add("ada", ada[OldMember].create(id="a", email="ADA@x.org"))
    test.add("bob", bob[OldMember].create(id="b", email="ada@X.org"))
    return nothing_more


def two_members_move_to_one_floor(test: Interleaving) -> Judge:
    """The field of a nested model is unique in the north; Bob comes there from the south, with his floor."""
    ada, bob = test.process(Member), test.process(Member)
    for name, zone, floor in (("a", "n", 1), ("b", "s", 2)):
        test.at_once(ada[Member].create(id=name, zone=zone, home=Home(street="low", floor=floor)))
    test.add("ada", ada[Member].patch("a", home=Home(street="low", floor=2)))
    test.add("bob", bob[Member].patch("b", zone="n"))

    def judge(history: StepHistory) -> Iterator[str]:
        error = history.outcomes["bob"].error
        if not isinstance(error, UniqueViolationError) or error.existing_key != "a":
            yield f"the move of bob ended with {history.outcomes['bob']}"

    return judge


def two_writers_move_one_member(test: Interleaving) -> Judge:
    """Both take it out of the same group."""
    ada, bob = test.process(OldMember), test.process(OldMember)
    test.at_once(ada[OldMember].create(id="a", city="x", tags=["t"]))
    test.add("ada", ada[OldMember].patch("a", city="y", tags=["u"]))
    test.add("bob", bob[OldMember].patch("a", city="z", tags=["v"]))
    return nothing_more


def two_creates_of_one_member(test: Interleaving) -> Judge:
    """One record, counted twice."""
    ada, bob = test.process(OldMember), test.process(OldMember)
    test.add("ada", ada[OldMember].create(id="a", city="x"))
    test.add("bob", bob[OldMember].create(id="a", city="y"))
    return nothing_more


def a_writer_has_not_heard_of_the_new_counters(test: Interleaving) -> Judge:
    """Ada's process read the header before the build; nobody would count her record."""
    old = test.process(OldMember)
    test.at_once(old[OldMember].create(id="a"))
    ada = test.process(Member)
    test.add("build", build(test.process(Member), "per_zone", Member))
    test.add("ada", ada[Member].create(id="b"))
    return nothing_more


def one_build_touches_what_another_has_not_reached(test: Interleaving) -> Judge:
    """The counters of zones lift every record above the fence of the build of parts, which then passes it over."""
    old = test.process(OldMember)
    test.at_once(old[OldMember].create(id="a", note="p q", tags=["t"]))
    test.add("build1", build(test.process(Member), "per_part", Member))
    test.add("build2", build(test.process(Member), "per_zone", Member))
    return nothing_more


def a_writer_rewrites_a_member_before_the_build_gets_there(test: Interleaving) -> Judge:
    """Neither tags nor hits change, so that the entries seem to be there."""
    ada = members(test, ("by_tag",), Member(id="a", tags=["t", "u"]))
    test.add("build", build(test.process(Member), "by_tag", Member))
    test.add("ada", ada[Member].patch("a", team="blue"))
    return nothing_more


def a_build_claims_a_badge_that_a_writer_found_free(test: Interleaving) -> Judge:
    """Bob gives up a badge whose slot does not exist yet; the build makes it before Bob commits."""
    bob = members(test, ("badges",), Member(id="b", badges=["b1", "b2"]))
    test.add("build", build(test.process(Member), "badges", Member))
    test.add("bob", bob[Member].patch("b", badges=["b2"]))
    return nothing_more


def a_create_of_too_many_elements_is_refused_beside_a_build(test: Interleaving) -> Judge:
    """A writer is told what a build would list."""
    ada = members(test, ("per_part",), Member(id="a"))
    test.add("build", build(test.process(Member), "per_part", Member))
    test.add("ada", ada[Member].create(id="b", note="p q r s"))

    def judge(history: StepHistory) -> Iterator[str]:
        error = history.outcomes["ada"].error
        if not isinstance(error, OperationTooLargeError) or error.limit != "max_fan_out":
            yield f"the create ended with {history.outcomes['ada']}"

    return judge


def counters_are_dropped_between_plan_and_read(test: Interleaving) -> Judge:
    """Eve planned with a header in which the counters were complete; her read comes when they are gone."""
    eve, dropper = test.process(OldMember), test.process(OldMember)
    for name in ("a", "b"):
        test.at_once(eve[OldMember].create(id=name, city="x"))
    test.add("drop", dropper.drop_index(OldMember, "per_city"))
    test.add("eve", eve[OldMember].filter(city="x").count())

    def judge(history: StepHistory) -> Iterator[str]:
        returned, error, _ = history.outcomes["eve"]
        if error is None and returned != 2:
            yield f"{returned} of two records were counted"
        assert error is None or isinstance(error, IndexNotReadyError | IndexChangedError)

    return judge


BEGUN = ("build read", "build commit")
"""The index is WRITE_ONLY."""

KIND_SCENES = (
    Scene("counted", (*BEGUN, "bob end", "build end"), a_member_moves_before_the_build_has_counted_it, SPEC),
    Scene("counted", (*BEGUN, "bob end", "build end"), a_member_is_removed_before_the_build_has_counted_it, SPEC),
    Scene("listed", ("ada end",), a_listed_member_is_touched_by_another_build_and_then_mended, SPEC),
    Scene("lacking", ("ada end",), a_member_with_a_long_part_is_touched_by_another_build_and_then_mended, SPEC),
    Scene(
        "listing",
        (
            *BEGUN,
            "build read",  # the header
            "build read",  # the fence
            "build read",  # progress and records
            "build now",
            "ada end",
            "build commit",  # would list what fits by now
            "bob end",  # takes nothing away from a member that is listed
            "build end",
        ),
        a_member_is_mended_before_the_build_lists_it,
        SPEC,
    ),
    Scene("touch", ("build end",), a_build_counts_what_is_there, SPEC),
    Scene("fence-builder", ("build end",), a_build_counts_what_is_there, SPEC),
    Scene("sum", ("ada end",), one_commit_adds_twice_to_one_group, OLD_SPEC),
    Scene("sum", ("ada end",), one_commit_takes_a_member_out_of_its_group_and_adds_it_again, OLD_SPEC),
    Scene("distinct", ("ada end",), a_member_has_an_element_twice, OLD_SPEC),
    Scene("included", ("ada end",), only_an_included_field_changes, OLD_SPEC),
    Scene("included", ("ada end",), only_an_included_field_of_slots_changes, OLD_SPEC),
    Scene("where", ("ada end",), a_member_comes_under_the_condition, OLD_SPEC),
    Scene("stored", ("new end",), a_release_with_another_function_writes_over_an_old_entry, RELABELLED_SPEC),
    Scene("elements", ("ada end", "bob end"), an_element_goes, OLD_SPEC),
    Scene("fold", ("ada end",), two_members_exchange_their_badges, OLD_SPEC),
    Scene("R1", ("ada commit", "bob commit"), two_creates_claim_one_badge, OLD_SPEC),
    Scene("R1", ("ada commit", "bob commit"), two_creates_claim_addresses_that_are_folded_to_one, OLD_SPEC),
    Scene(
        "R1",
        ("ada read", "ada read", "bob read", "bob read", "ada commit", "bob commit"),
        two_members_move_to_one_floor,
        SPEC,
    ),
    Scene("R2", ("ada read", "bob read", "ada commit", "bob commit"), two_writers_move_one_member, OLD_SPEC),
    Scene("R3", ("build end", "ada commit"), a_writer_has_not_heard_of_the_new_counters, SPEC),
    Scene(
        "R4",
        ("build1 read", "build1 commit", "build2 end", "build1 end"),
        one_build_touches_what_another_has_not_reached,
        SPEC,
    ),
    Scene("R5-record", ("ada commit", "bob commit"), two_creates_of_one_member, OLD_SPEC),
    Scene("guard", ("drop end", "eve end"), counters_are_dropped_between_plan_and_read, OLD_SPEC),
    Scene("fence", (*BEGUN, "ada end", "build end"), a_writer_rewrites_a_member_before_the_build_gets_there, SPEC),
    Scene(
        "R1",
        (
            *BEGUN,
            "build read",  # the header
            "build read",  # the fence
            "build read",  # progress and records
            "build now",  # it takes the slots of both badges for free
            "bob read",  # his header is out of date
            "bob read",  # the header
            "bob read",  # the fence
            "bob read",  # his record
            "bob read",  # his record and the slots: none is there
            "build commit",  # the slots belong to b now
            "bob commit",  # gives up a slot that was not there
        ),
        a_build_claims_a_badge_that_a_writer_found_free,
        SPEC,
    ),
)
