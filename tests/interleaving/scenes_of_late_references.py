"""Schedules for the rules of foreign keys that are added to stored records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvmodels.flows.evolution.violations import resolve
from kvmodels.testing.interleaving import Interleaving
from kvmodels.testing.processes import Process
from kvmodels.testing.schedules import StepHistory
from tests.interleaving.late_references import (
    Echo,
    IndexedVerse,
    OldEcho,
    OldPoem,
    OldVerse,
    Poem,
    Poet,
    Verse,
    stray_guards,
)
from tests.interleaving.late_references import late_reference_faults as faults_of
from tests.interleaving.scenes import Judge, Scene, build, nothing_more


class LateReferenceScene(Scene):
    """A schedule over poets, and works that get a foreign key to them."""

    def faults(self) -> tuple[list[str], StepHistory]:
        """Run it; what is wrong, and the story."""
        test = Interleaving(schedule=self.schedule)
        judge = self.play(test)
        history = test.run()
        return [*faults_of(test.engine), *stray_guards(test.engine), *judge(history)], history


class Stage(NamedTuple):
    """A process of the older release, two of the newer one, and one of it that builds."""

    old: Process
    ada: Process
    bob: Process
    builder: Process


def prepare(
    test: Interleaving, *poets: str, kinds: tuple[type[Any], type[Any]] = (OldPoem, Poem), **works: str
) -> Stage:
    """The processes of a store with these poets, and works by their poets."""
    before, after = kinds
    old = test.process(Poet, before)
    for name in poets:
        test.at_once(old[Poet].create(id=name))
    for name, poet in works.items():
        test.at_once(old[before].create(id=name, poet=poet))
    return Stage(old, *(test.process(Poet, after) for _ in range(3)))


def build_poems(stage: Stage) -> Any:
    """Build the foreign key of poems."""
    return build(stage.builder, "poet", Poem)


def resolve_poems(stage: Stage) -> Any:
    """Try the listed poems again."""
    process = stage.builder
    return process.run(resolve(process.context, process.schema(Poem), "poet"))


def an_older_release_inserts_a_poem_without_a_poet(test: Interleaving) -> Judge:
    """Its header is from before the fence, so it does not look for the poet."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("ada", stage.old[OldPoem].create(id="n", poet="v"))
    return nothing_more


def a_poet_is_removed_by_the_header_from_before_the_fence(test: Interleaving) -> Judge:
    """To this removal, nothing refers to poets."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("bob", stage.old[Poet].remove("w"))
    return nothing_more


def a_poem_without_a_poet_is_inserted_during_the_scan(test: Interleaving) -> Judge:
    """The build does not visit what is newer than its fence."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].create(id="n", poet="v"))
    return refused("ada")


def a_poem_without_a_poet_gets_a_title_before_the_build_reaches_it(test: Interleaving) -> Judge:
    """Its key stays, and it is newer than the fence afterwards."""
    stage = prepare(test, "w", a="v")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].patch("a", title="t"))
    return succeeded("ada")


def a_listed_poem_gets_a_title(test: Interleaving) -> Judge:
    """The build has listed it, and there is still no poet."""
    stage = prepare(test, "w", a="v")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].patch("a", title="t"))
    return succeeded("ada")


def a_poem_gets_a_title_beside_the_removal_of_its_poet(test: Interleaving) -> Judge:
    """To the removal, the poem has no entry yet; the change writes it."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].patch("a", title="t"))
    test.add("bob", stage.bob[Poet].remove("w"))
    return nothing_more


def a_poet_is_removed_beside_the_build(test: Interleaving) -> Judge:
    """The builder is a referrer like others."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("bob", stage.bob[Poet].remove("w"))
    return nothing_more


def a_poet_is_renamed_beside_the_build(test: Interleaving) -> Judge:
    """To those who refer to it, a record that gets another key is removed."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("bob", stage.bob[Poet].rename("w", "x"))
    return nothing_more


def a_poet_is_removed_and_inserted_again_beside_the_build(test: Interleaving) -> Judge:
    """The new poet has no guard, so the builder must set one."""
    stage = prepare(test, "w", a="w")

    async def again() -> None:
        await stage.bob[Poet].remove("w")
        await stage.bob[Poet].create(id="w")
        await stage.bob[Poet].remove("w")

    test.add("build", build_poems(stage))
    test.add("bob", again())
    return nothing_more


def a_poem_is_given_another_poet_beside_the_build(test: Interleaving) -> Judge:
    """The builder has read the former poet."""
    stage = prepare(test, "v", "w", a="v")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].patch("a", poet="w"))
    return nothing_more


def a_poem_without_a_poet_is_built(test: Interleaving) -> Judge:
    """Nobody else is there."""
    stage = prepare(test, "w", a="v", b="w")
    test.add("build", build_poems(stage))
    return nothing_more


def a_poem_is_given_a_missing_poet_at_the_end_of_the_build(test: Interleaving) -> Judge:
    """The builder has seen that nothing is listed."""
    stage = prepare(test, "w", a="w")
    test.add("build", build_poems(stage))
    test.add("ada", stage.ada[Poem].patch("a", poet="v"))
    return refused("ada")


def a_poet_of_an_indexed_poem_is_removed_while_another_is_listed(test: Interleaving) -> Judge:
    """The index is PENDING."""
    stage = prepare(test, "w", a="v", b="w")
    test.add("build", build_poems(stage))
    test.add("bob", stage.bob[Poet].remove("w"))
    return nothing_more


def a_poet_is_removed_with_the_verses_that_are_indexed(test: Interleaving) -> Judge:
    """A cascade reaches what is indexed, and nothing is left of it."""
    stage = prepare(test, "w", kinds=(OldVerse, Verse), a="v", b="w")
    test.add("build", build(stage.builder, "poet", Verse))
    test.add("bob", stage.bob[Poet].remove("w"))
    return succeeded("bob")


def a_poet_is_removed_with_verses_that_another_index_has(test: Interleaving) -> Judge:
    """The build has not reached them, but the index of the older release has them."""
    stage = prepare(test, "w", kinds=(IndexedVerse, Verse), a="w", b="w")
    test.add("build", build(stage.builder, "poet", Verse))
    test.add("bob", stage.bob[Poet].remove("w"))

    def judge(history: StepHistory) -> Iterator[str]:
        yield from succeeded("bob")(history)
        left = test.at_once(stage.ada[Verse].all().allow_scan().to_list())
        yield from (f"{verse} is left" for verse in left)

    return judge


def a_poet_is_removed_from_the_echoes_that_are_indexed(test: Interleaving) -> Judge:
    """The same, where the works stay."""
    stage = prepare(test, "w", kinds=(OldEcho, Echo), a="v", b="w")
    test.add("build", build(stage.builder, "poet", Echo))
    test.add("bob", stage.bob[Poet].remove("w"))
    return succeeded("bob")


def a_poet_is_removed_while_a_listed_poem_is_resolved(test: Interleaving) -> Judge:
    """The poet was stored after the poem was listed, and goes again."""
    stage = prepare(test, "w", a="v", b="w")
    test.at_once(build_poems(stage))
    test.at_once(stage.ada[Poet].create(id="v"))
    test.add("resolve", resolve_poems(stage))
    test.add("bob", stage.bob[Poet].remove("v"))
    return nothing_more


def refused(client: str) -> Judge:
    """The write of a client is refused, because it refers to no record."""

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes[client].error is None:
            yield f"{client} refers to a record that is not there"

    return judge


def succeeded(client: str) -> Judge:
    """A client is not refused."""

    def judge(history: StepHistory) -> Iterator[str]:
        if history.outcomes[client].error is not None:
            yield f"{client} was refused: {history.outcomes[client].error}"

    return judge


BEGUN = ("build read", "build commit")
AT_THE_TARGETS = (*BEGUN, *("build read",) * 3, "build now", "build read")
"""The builder has read the poems and their poets, and has not written the entries."""

AT_THE_END = (*AT_THE_TARGETS, "build commit", "build now", *("build read",) * 5)
"""The builder has seen that nothing is listed."""

REMOVAL = ("bob read", "bob commit", *("bob read",) * 4)
"""Bob's header is from before the fence; the last reads are those of the poet with its guard, and of the entries."""

RENAME = ("bob read",) * 6
INSIDE_BUILD = (*AT_THE_TARGETS, "bob end")
INSIDE_REMOVAL = (*AT_THE_TARGETS, *REMOVAL, "build commit", "bob end")
INSIDE_RENAME = (*AT_THE_TARGETS, *RENAME, "build commit", "bob end")
INSIDE_REMOVAL_BESIDE_ADA = (*BEGUN, *REMOVAL, "ada end", "bob end")
INSIDE_SCAN = (*AT_THE_TARGETS, "build commit", "bob end")
AT_THE_RESOLVED = (*("resolve read",) * 6, "resolve now", "resolve read")
INSIDE_RESOLVE = (*AT_THE_RESOLVED, "bob end")
INSIDE_REMOVAL_BESIDE_RESOLVE = (*AT_THE_RESOLVED, *REMOVAL, "resolve commit", "bob end")

LATE_REFERENCE_SCENES = (
    LateReferenceScene("R3", ("build end", "ada commit"), an_older_release_inserts_a_poem_without_a_poet),
    LateReferenceScene("R3", ("bob read", "build end"), a_poet_is_removed_by_the_header_from_before_the_fence),
    LateReferenceScene("R2", (*AT_THE_TARGETS, "ada end"), a_poem_is_given_another_poet_beside_the_build),
    LateReferenceScene("new-references", (*BEGUN, "ada end"), a_poem_without_a_poet_is_inserted_during_the_scan),
    LateReferenceScene("unproven", (*BEGUN, "ada end"), a_poem_without_a_poet_gets_a_title_before_the_build_reaches_it),
    LateReferenceScene("unproven", ("build end", "ada end"), a_listed_poem_gets_a_title),
    LateReferenceScene("unproven", INSIDE_REMOVAL_BESIDE_ADA, a_poem_gets_a_title_beside_the_removal_of_its_poet),
    LateReferenceScene("listed-instead", ("build end",), a_poem_without_a_poet_is_built),
    LateReferenceScene("listed-instead", ("build end", "ada end"), a_listed_poem_gets_a_title),
    LateReferenceScene(
        "changed-refused", (*AT_THE_END, "ada end"), a_poem_is_given_a_missing_poet_at_the_end_of_the_build
    ),
    *(
        LateReferenceScene("target-check", INSIDE_BUILD, play)
        for play in (a_poet_is_removed_beside_the_build, a_poet_is_renamed_beside_the_build)
    ),
    *(
        LateReferenceScene(mutant, schedule, play)
        for mutant in ("reference-mark", "guard-check", "guard-first")
        for schedule, play in (
            (INSIDE_REMOVAL, a_poet_is_removed_beside_the_build),
            (INSIDE_RENAME, a_poet_is_renamed_beside_the_build),
        )
    ),
    LateReferenceScene("target-check", INSIDE_BUILD, a_poet_is_removed_and_inserted_again_beside_the_build),
    LateReferenceScene("target-check", INSIDE_RESOLVE, a_poet_is_removed_while_a_listed_poem_is_resolved),
    *(
        LateReferenceScene(mutant, INSIDE_REMOVAL_BESIDE_RESOLVE, a_poet_is_removed_while_a_listed_poem_is_resolved)
        for mutant in ("reference-mark", "guard-check")
    ),
    LateReferenceScene("complete-index", (*BEGUN, "bob end"), a_poet_is_removed_with_verses_that_another_index_has),
    LateReferenceScene("referrers", INSIDE_SCAN, a_poet_is_removed_beside_the_build),
    LateReferenceScene("referrers", INSIDE_SCAN, a_poet_is_removed_with_the_verses_that_are_indexed),
    *(
        LateReferenceScene("referrers", ("build end", "bob end"), play)
        for play in (
            a_poet_of_an_indexed_poem_is_removed_while_another_is_listed,
            a_poet_is_removed_with_the_verses_that_are_indexed,
            a_poet_is_removed_from_the_echoes_that_are_indexed,
        )
    ),
)
