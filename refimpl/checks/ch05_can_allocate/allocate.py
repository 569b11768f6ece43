"""05-allocate: block tables for whoever comes in.

The account counts owners and nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from refimpl.block_manager import BlockSpaceManager
from refimpl.checks.admission_world import KINDS, LOOKED_AT, REQUEST_KEEPS, WAITS, AdmissionWorld, alone, is_number
from refimpl.checks.manager_comparison import STATE, TABLES, Facts
from refimpl.checks.manager_world import GPU, REFUSAL_KEEPS, REFUSES, random_sizes, sizes
from refimpl.checks.step import History, Log, Operation, Setup, Step, equal, show
from refimpl.checks.thoughts import asked, returns
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus

OWN_LIST = "every sequence has a list of its own"
NOT_COMPUTED = "a block that has just been taken is not computed"
PREFIX_LASTS = "the beginning of a prompt is kept for longer than its end"

COMES_BACK, REFUSED_BETWEEN = "a prompt that comes back", "a prompt that comes back after a refusal"
AT_ONCE = "a prompt that two ask for at once"
TOLD = (COMES_BACK, REFUSED_BETWEEN, AT_ONCE)  # lives of a pool that are one operation


class _TablesWorld(AdmissionWorld):
    """Requests come in, grow where no content is kept, and go."""

    verbs: tuple[str, ...] = ("allocate", "free", "append_slots")

    def __init__(self, subject: Any, setup: Setup, log: Log) -> None:
        super().__init__(subject, setup, log)
        if self.account.caching:  # what growing does with keys is chapter 06's
            self.verbs = ("allocate", "free")
        self.why = ""  # the last request had to be refused
        self.over = False
        self.let_in: list[str] = []  # the sequences of the last request that waited

    def choices(self) -> Iterable[Operation]:
        if self.over:
            return
        yield from super().choices()
        new = self.names.new_key()
        for num_tokens in (1, self.block_size + 1, 2 * self.block_size, 2 * self.block_size + 1):
            yield from (("allocate", new, *rest) for rest in self.kinds(num_tokens))
        for key in TOLD:
            if self.possible(("allocate", key)):
                yield from [("allocate", key)] * 10

    def possible(self, operation: Operation) -> bool:
        verb, key, *arguments = operation
        if self.over:
            return False
        if key in TOLD:
            return self.account.caching and self.account.total[GPU] == 4 and not self.groups
        if verb == "allocate" and not arguments:
            return key in self.names and self._some_have_tables(key)
        if verb == "append_slots" and not self.account.free(GPU):  # so is growing without room
            return False
        return super().possible(operation)

    def _some_have_tables(self, key: Any) -> bool:
        return any(seq.seq_id in self.account.tables for seq in self.groups[key].get_seqs())

    def _allocate(self, key: Any, *arguments: Any) -> None:
        self.why = ""
        if key == COMES_BACK:
            self._come_back()
        elif key == REFUSED_BETWEEN:
            self._come_back_after_a_refusal()
        elif key == AT_ONCE:
            self._come_at_once()
        elif not arguments:
            first = self.groups[key].get_seqs()[0]
            self.why = "again" if first.seq_id in self.account.tables else "again, but for the first"
            self._allocate_again(key)
        elif len(arguments) == 1:
            self._allocate_back(key, *arguments)
        else:
            self._allocate_new(key, *arguments)

    def _allocate_new(self, key: Any, num_tokens: int, num_seqs: int, text: int, kind: str = WAITS) -> None:
        name = self.names.add(key)
        self.groups[key] = self.request_of(len(self.groups), num_tokens, num_seqs, text, kind)
        self.texts[key] = text
        self.log.note(f"{name} = {self.words(num_tokens, num_seqs, text, kind)}")
        self._admit(key, f"manager.allocate({name})")

    def _admit(self, key: Any, line: str) -> None:
        group = self.groups[key]
        facts = self.facts_of(group) | {"group": self.names[key]}
        waiting = group.get_seqs(SequenceStatus.WAITING)
        tokens = tuple(waiting[0].get_token_ids()) if waiting else ()
        if not waiting:
            self.why = "nobody"
        elif self.account.allocate([seq.seq_id for seq in waiting], tokens) is None:
            self.why = "no room"
        if self.why:
            self._refuse(line, self.manager.allocate, group, facts=facts)
            return
        self._call(line, self.manager.allocate, group, facts=facts)
        self._set_status(waiting, SequenceStatus.RUNNING)
        let_in = {self._name_of(key, seq): seq for seq in waiting}
        self.let_in = list(let_in)
        self._look_at_lists(let_in, facts)
        self._compare(facts)

    def _append_slots(self, key: Any, i: int, token: int, count: int) -> None:
        """One token more, which shows whether two sequences have one list."""
        seq, name = self.groups[key].get_seqs()[i], self._seq_name(key, i)
        seq.append_token_id(token)
        self.account.append(seq.seq_id, tuple(seq.get_token_ids()))
        line = f"{name}.append_token_id({token}); manager.append_slots({name})"
        self._call(line, self.manager.append_slots, seq, facts={"whose": name})
        self._compare({})

    def _name_of(self, key: Any, seq: Sequence) -> str:
        return self._seq_name(key, self.groups[key].get_seqs().index(seq))

    def _look_at_lists(self, seqs: dict[str, Sequence], facts: Facts) -> None:
        """Each new table is a list of blocks, and no list is two sequences' table."""
        seen: dict[int, str] = {}  # id of a list -> whose table it is
        for name, seq in seqs.items():
            table = self.manager.block_tables.get(seq.seq_id)
            if not isinstance(table, list):
                continue
            numbers = [entry for entry in table if is_number(entry)]
            self.log.hold(TABLES, not numbers, f"{name}'s block table should hold blocks", f"it holds {show(table)}",
                          "numbers-instead-of-blocks", numbers=show(numbers))  # fmt: skip
            other = seen.setdefault(id(table), name)
            self.log.hold(OWN_LIST, other == name, f"{name} should have a list of its own",
                          f"it has the list of {other}", "same-list", name=name, other=other)  # fmt: skip

    def _come_back(self) -> None:
        """A prompt of three blocks comes, goes, and comes again after another of two, in a pool of four."""
        a, c = self._come_and_go(3)
        b = self._request(1, 2 * self.block_size, 1, 1)
        self._let_in("b", b)
        self.log.call("manager.free(b.seqs[0])", self.manager.free, b.get_seqs()[0])
        self._let_in("c", c)
        found, again = self._computed(c), self._numbers(c)
        name = "prefix-goes-first" if len(a) == len(again) == 3 and a[:2] != again[:2] else None
        self.log.hold(PREFIX_LASTS, len(found) == 2, "2 of its blocks should be found computed", f"{len(found)} are",
                      name, found=len(found))  # fmt: skip

    def _come_back_after_a_refusal(self) -> None:
        """A prompt of two blocks comes, goes, and comes again after another had to be refused."""
        _, c = self._come_and_go(2)
        b, self.why = self._request(1, 5 * self.block_size, 1, 1), "no room"
        self._refuse(self._enters("b", b), self.manager.allocate, b, facts=self.facts_of(b))
        self._let_in("c", c)
        found = self._computed(c)
        name = "taken-and-given-back" if asked(self._finds_again) else None
        self.log.hold(REFUSAL_KEEPS, len(found) == 1, "1 of its blocks should be found computed",
                      f"{len(found)} are", name)  # fmt: skip

    def _finds_again(self) -> bool:
        """Whether a prompt that comes back is found where nothing happens in between, in a pool of its own."""
        manager = self.subject(2, 4, 1, 0.0, True)
        a, c = (alone(seq_id, range(4), 2) for seq_id in (0, 1))
        manager.allocate(a)
        manager.mark_blocks_as_computed(a)
        manager.free(a.get_seqs()[0])
        manager.allocate(c)
        return len(list(manager.get_common_computed_block_ids(c.get_seqs()))) == 1

    def _come_at_once(self) -> None:
        """Two requests of one prompt, before anything of it is computed."""
        self.over = True
        a, c = (self._request(number, 2 * self.block_size, 1, 0) for number in (0, 2))
        self._let_in("a", a)
        self._let_in("c", c)
        self._table_of("c", c, 2)
        self._insist_on_nothing_computed("c", c)

    def _come_and_go(self, num_blocks: int) -> tuple[list[Any], SequenceGroup]:
        """A request is computed and ends; the numbers of its blocks, and a second request of the same prompt."""
        self.over = True
        a, c = (self._request(number, num_blocks * self.block_size, 1, 0) for number in (0, 2))
        self._let_in("a", a)
        self._set_status(a.get_seqs(), SequenceStatus.RUNNING)
        table = self._table_of("a", a, num_blocks)
        self._insist_on_nothing_computed("a", a)
        self._compare_covers(table)
        before = self._numbers(a)
        self.log.call("manager.mark_blocks_as_computed(a)", self.manager.mark_blocks_as_computed, a)
        self.log.call("manager.free(a.seqs[0])", self.manager.free, a.get_seqs()[0])
        return before, c

    def _table_of(self, name: str, group: SequenceGroup, num_blocks: int) -> list[Any]:
        table: list[Any] = self.manager.block_tables.get(group.get_seqs()[0].seq_id, [])
        self.log.expect(TABLES, f"the number of blocks in {name}'s table", len(table), num_blocks)
        return table

    def _insist_on_nothing_computed(self, name: str, group: SequenceGroup) -> None:
        self.log.hold(NOT_COMPUTED, not self._computed(group), f"none of {name}'s blocks should count as computed",
                      "some do", "computed-too-early")  # fmt: skip

    def _enters(self, name: str, group: SequenceGroup) -> str:
        """The line in which a request of this name comes in; the second of the three has another text."""
        words = self.words(group.get_seqs()[0].get_len(), 1, int(name == "b"))
        return f"{name} = {words}; manager.allocate({name})"

    def _let_in(self, name: str, group: SequenceGroup) -> None:
        self.log.call(self._enters(name, group), self.manager.allocate, group)

    def _compare_covers(self, table: list[Any]) -> None:
        """How many tokens a block's key covers, where a block says it; that they grow is seen by what is kept."""
        covers: list[Any] = [getattr(block, "num_hashed_tokens", None) for block in table]
        expected = [(i + 1) * self.block_size for i in range(len(table))]
        if not all(isinstance(number, int) for number in covers) or sorted(set(covers)) != covers:
            return
        self.log.hold(PREFIX_LASTS, covers == expected, f"their keys should cover {expected} tokens",
                      f"they cover {covers}", "covers-miscounted", covers=covers, expected=expected)  # fmt: skip

    def _list(self, method: str, asked: Any) -> list[Any]:
        """What the manager answers to a question that has a list for an answer."""
        found: list[Any] = self.log.ask(f"manager.{method}(...)", lambda: list(getattr(self.manager, method)(asked)))
        return found

    def _numbers(self, group: SequenceGroup) -> list[Any]:
        return self._list("get_block_table", group.get_seqs()[0])

    def _computed(self, group: SequenceGroup) -> list[Any]:
        return self._list("get_common_computed_block_ids", group.get_seqs())

    def raised(self, facts: Facts) -> tuple[type[Exception], str] | None:
        if self.operation[0] != "allocate" or not self.lets_in:
            return None
        if facts["required"] > facts["free"]:
            return (ValueError, "refused-in-spite-of-hits") if asked(self._shares_prompts) else None
        kept = facts["free"] - facts["required"] >= facts["reserved"]
        return ValueError, "refused-with-room" if kept else "watermark-asked-again"

    def refused(self, facts: Facts) -> tuple[str | None, str | None]:
        returned = {
            "again": "second-table-accepted",
            "again, but for the first": "only-the-first-asked",
            "nobody": "nobody-waiting-accepted",
            "no room": "takes-what-there-is",
        }[self.why]
        if not self.lets_in:
            return returned, None
        return returned, "nobody-waiting-other-error" if self.why == "nobody" else "other-error"

    @cached_property
    def lets_in(self) -> bool:
        """Whether a request that is alone comes in: if not, no error of its own is about the refusals."""
        return returns(self._blocks_of, 5)

    def fault(self, symptom: str, facts: Facts) -> str | None:
        if self.operation[0] != "allocate":
            return None
        if self.why:
            if self.why != "no room":
                return "changed-before-refusing"
            return "taken-and-given-back" if symptom == "forgotten" else "half-done"
        name = facts.get("whose", "")
        if symptom in ("no-table", "left-table", "length") and not name.startswith(f"{facts['group']}."):
            return None  # somebody else's table has suffered
        if symptom == "no-table":
            return "table-not-kept" if name == self.let_in[0] else "only-the-first"
        if symptom == "left-table":
            return "everybody-gets-a-table"
        if symptom == "length":
            return self._wrong_length(facts)
        if symptom in ("not-shared", "mixed-up"):
            return self._wrong_block(symptom, facts)
        return self._wrong_owners(facts) if symptom == "owners" else None

    def _wrong_length(self, facts: Facts) -> str | None:
        if asked(self._blocks_of, 5) != 3:  # of a sequence that is alone and new, so nothing else is to blame
            return "one-block-more" if equal(facts["got"], facts["expected"] + 1) else None
        for name in ("of_prompt", "of_first"):
            if facts[name] != facts["expected"] and equal(facts["got"], facts[name]):
                return "prompt-only" if name == "of_prompt" else "not-the-waiting-one"
        return "one-block-more" if equal(facts["got"], facts["expected"] + 1) else None

    def _blocks_of(self, num_tokens: int) -> int:
        """How many blocks of 2 the class gives to so many tokens, in a pool of its own."""
        manager, group = self.subject(2, 8, 1, 0.0, False), alone(0, range(num_tokens), 2)
        manager.allocate(group)
        return len(manager.get_block_table(group.get_seqs()[0]))

    def _wrong_block(self, symptom: str, facts: Facts) -> str | None:
        """A block that should be shared and is not, by siblings or by content; or one that should not and is."""
        whose, other = facts["whose"], facts["other"]
        if whose == other:
            return "one-block-many-times"
        if symptom == "not-shared" and whose.partition(".")[0] == other.partition(".")[0]:
            return "blocks-for-each"
        return asked(self._of_one_text) if self.account.caching else None

    def _of_one_text(self) -> str | None:
        """What becomes of a prompt of one block that another goes on from, in a pool of its own."""
        manager = self.subject(2, 8, 1, 0.0, True)
        short, long = (alone(seq_id, range(num_tokens), 2) for seq_id, num_tokens in enumerate((2, 4)))
        for group in (short, long):
            manager.allocate(group)
        (known,), table = (manager.get_block_table(group.get_seqs()[0]) for group in (short, long))
        if known not in table:
            return "content-not-asked-for"
        if table[-1] == known:
            return "upside-down"
        return None if self._shares_prompts() else "content-not-asked-for"

    def _shares_prompts(self) -> bool:
        """Whether a prompt that is held already gets the same blocks, full or not, in a pool of its own."""
        manager, tables = self.subject(2, 8, 1, 0.0, True), []
        for seq_id, num_tokens in enumerate((2, 2, 3, 3)):
            group = alone(seq_id, range(10 * num_tokens, 11 * num_tokens), 2)
            manager.allocate(group)
            tables.append(list(manager.get_block_table(group.get_seqs()[0])))
        return tables[0] == tables[1] and tables[2] == tables[3]

    def _wrong_owners(self, facts: Facts) -> str | None:
        got, owners, siblings = facts["got"], facts["expected"], facts["num_seqs"]
        if siblings > 1 and equal(got, owners - siblings + 1):
            return "siblings-not-counted"
        if equal(got, owners + 1) and asked(self._owners_of_one) == 2:
            return "first-counted-twice"
        others = facts["num_others"]
        return "others-counted" if others and equal(got, owners + others) else None

    def _owners_of_one(self) -> Any:
        """What the class counts on the block of a request that is alone in a pool of its own."""
        manager = self.subject(2, 8, 1, 0.0, False)
        manager.allocate(alone(0, range(1), 2))
        return manager.block_tables[0][0].ref_count


def _sizes(rng: random.Random) -> Setup:
    """Now and then a pool in which a prompt can come back."""
    return sizes(rng.choice((1, 2, 3)), 4, caching=True) if rng.random() < 0.2 else random_sizes(rng)


BOTH_GO = (("free", "a", 0), ("free", "a", 1))


STEP = Step(
    exercise_id="05-allocate",
    title="block tables for whoever comes in",
    points=4,
    subject="BlockSpaceManager",
    writes=("allocate",),
    needs=("free", "append_slots", *LOOKED_AT, "mark_blocks_as_computed", "get_common_computed_block_ids"),
    reference=(BlockSpaceManager.allocate,),
    properties=(*STATE, OWN_LIST, NOT_COMPUTED, PREFIX_LASTS, REQUEST_KEEPS, REFUSES, REFUSAL_KEEPS),
    misconceptions={
        "table-not-kept": "A block that is taken must stand in a table: put the list into `block_tables` under "
        "the sequence's `seq_id`, or nobody will ever give it back.",
        "only-the-first": "Every sequence that is WAITING gets a table: this request has {num_seqs}, and {whose} "
        "has none.",
        "everybody-gets-a-table": "Only sequences that are WAITING get blocks: {whose} was not, and has a table now.",
        "same-list": "Siblings grow apart, so they need two lists: {name} was given the list of {other}, and what "
        "one of them appends would stand in both tables.",
        "blocks-for-each": "The prompt is the same for all siblings, and so are its blocks: {num_seqs} sequences "
        "take {required} blocks together, and yours gave {whose} others than {other}.",
        "one-block-many-times": "Every logical block needs a block of its own, one call of the allocator for each: "
        "block {number} stands in {whose}'s table more than once.",
        "siblings-not-counted": "A block's `ref_count` is the number of tables that hold it: block {number} stands "
        "in {expected} tables now, and its count is {got}.",
        "first-counted-twice": "A block that comes from the allocator has its first owner already, so only the "
        "others are added: the count of block {number} should be {expected} now, and is {got}.",
        "others-counted": "An owner is who has a table, and siblings that do not wait get none: the count of block "
        "{number} should be {expected} now, and is {got}.",
        "one-block-more": "`allocate` covers the tokens that are there, and the next one is chapter 6's business: "
        "{num_tokens} tokens need {expected} blocks, and {whose} got {got}.",
        "prompt-only": "A sequence that was thrown out needs room for what it has produced as well: its "
        "{num_tokens} tokens need {expected} blocks, and {whose} got the {got} of its prompt.",
        "not-the-waiting-one": "The first sequence that is WAITING says how many blocks are needed: it needs "
        "{expected}, and {whose} got {got}, as the {first_status} one would need.",
        "numbers-instead-of-blocks": "A block table holds the blocks and not their numbers, because the owner "
        "count is on the block: yours holds {numbers}.",
        "content-not-asked-for": "With caching on, a block is asked for by its key: {whose} begins with the text "
        "of {other} and should have got the block that holds it.",
        "upside-down": "Logical block 0 stands first in the table: {whose} and {other} begin with the same text, "
        "and the block that holds it stands elsewhere in your table.",
        "prefix-goes-first": "Tell the allocator how many tokens each key covers, (i + 1) times the block size: "
        "without it a prompt's beginning is given away before its end, and {found} of 2 blocks were found again.",
        "covers-miscounted": "A key covers the tokens from the start of the sequence to the end of its block: "
        "{expected} for the blocks of this prompt, and yours told the allocator {covers}.",
        "computed-too-early": "A block is not computed by being handed out, be it new or found by its key: "
        "`mark_blocks_as_computed` says so, when the step that computes it has been scheduled.",
        "half-done": "All or nothing ({required} blocks needed, {free} free): look before you take the first one, "
        "or nobody gives back what was taken before the error.",
        "taken-and-given-back": "To give back what was taken is not to leave it alone: the blocks hold other "
        "content by then, and a prompt that was known is found no more, so look before you take.",
        "takes-what-there-is": "Half a prompt is of no use, and silence is no answer: where there is too little "
        "room ({required} blocks needed, {free} free) raise ValueError.",
        "second-table-accepted": "A sequence that has a block table keeps it: a second one would replace the "
        "first, and the first one's blocks could never be given back, so raise ValueError.",
        "only-the-first-asked": "It is enough that one WAITING sequence has a table already, be it the first or "
        "another: a second one would replace it, and its blocks would be lost, so raise ValueError.",
        "changed-before-refusing": "A call that is refused leaves everything as it was: ask all the questions "
        "first, and take or give back nothing before the last of them.",
        "other-error": "The errors of `allocate` are ValueErrors, since that is what a caller waits for: yours "
        "ended in {error}.",
        "nobody-waiting-accepted": "A request in which nobody is WAITING gets nothing, and the caller should hear "
        "of it: raise ValueError, as `_waiting_seqs` does.",
        "nobody-waiting-other-error": "A request in which nobody is WAITING is refused with ValueError, as "
        "`_waiting_seqs` does: yours ended in {error}.",
        "watermark-asked-again": "The watermark was the question of `can_allocate`, and it is not asked again: "
        "there was room ({required} blocks needed, {free} free), and yours raised {error}.",
        "refused-with-room": "There was room ({required} blocks needed, {free} free), and yours raised {error}.",
        "refused-in-spite-of-hits": "A block that is held already and found by its key takes no free one: "
        "{known} of the {required} blocks are known ({free} free), and yours raised {error}.",
        "request-changed": "Statuses are the scheduler's business: `allocate` hands out blocks and leaves the "
        "request as it is.",
    },
    world=_TablesWorld,
    examples=(
        History.of(sizes(4, 4), ("allocate", "a", 5, 2, 0), ("allocate", "a"), ("allocate", "b", 9, 1, 0)),
        History.of(sizes(4, 4), ("allocate", "a", 2, 1, 0), ("allocate", "a"), ("free", "a", 0)),
        History.of(sizes(2, 4, percent=50), ("allocate", "a", 6, 1, 0)),
        History.of(sizes(2, 3), ("allocate", "a", 4, 2, 0)),
        History.of(sizes(4, 8), ("allocate", "a", 6, 2, 0), ("append_slots", "a", 0, 0, 1), *BOTH_GO),
        History.of(sizes(4, 4, caching=True), ("allocate", "a", 6, 2, 0), *BOTH_GO),
        History.of(sizes(2, 8, caching=True), ("allocate", "a", 2, 1, 0), ("allocate", "b", 4, 1, 0)),
        History.of(sizes(2, 4, caching=True), ("allocate", "a", 6, 1, 0), ("allocate", "b", 6, 1, 0)),
        History.of(sizes(2, 2), ("allocate", "a", 3, 1, 0), ("free", "a", 0), ("allocate", "a", 0)),
        History.of(sizes(2, 6), ("allocate", "a", 3, 2, 0), ("free", "a", 1), ("allocate", "a", 1)),
        History.of(sizes(2, 4, caching=True), ("allocate", "a", 3, 1, 0), ("allocate", "b", 3, 1, 0)),
        History.of(sizes(2, 9), *[("allocate", kind, 4, 1, 0, kind) for kind in KINDS]),
        *[History.of(sizes(2, 9), ("allocate", "a", 4, 2, 0), ("free", "a", i), ("allocate", "a")) for i in (0, 1)],
        History.of(sizes(2, 6), ("allocate", "a", 4, 3, 0), ("free", "a", 0), ("free", "a", 2), ("allocate", "a")),
        *[History.of(sizes(2, 4, caching=True), ("allocate", life)) for life in TOLD],
    ),
    setups=_sizes,
)
