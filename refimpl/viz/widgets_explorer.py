"""A live block manager to try out: every button is one call, drawn as it left the manager, or refused in words.

The explorer owns the sequences that it made up and stands in for the scheduler: it asks before it acts, and keeps the
statuses. The manager may be a learner's: whatever it raises or returns is shown as text.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import ipywidgets

from refimpl.block_manager import AllocStatus
from refimpl.sequence import Sequence, SequenceGroup, SequenceStatus
from refimpl.simulation.recording import MemoryReader
from refimpl.viz import draw
from refimpl.viz.widgets_base import (
    LETTERS,
    PictureView,
    arrows,
    attempt,
    in_words,
    live_box,
    log_html,
    show,
    strong_html,
    table_html,
)

SHOWN = 8  # latest lines of the log
MOST_TOKENS = 1000
HEADS = ("Sequence", "Request", "Status", "Length", "Block table")

Pairs: TypeAlias = list[tuple[int, int]]


@dataclass(slots=True)
class Living:
    """A sequence that has not ended, and the request that it belongs to."""

    seq: Sequence
    request_id: str


class PoolExplorer:
    """Buttons to add, append, fork, free and swap over one block manager, with the effect drawn.

    What a button does a method does, too, and returns as a sentence. In a notebook it stands at the end of a cell,
    which asserts what a reader is to see in it, and a plain cell beside it shows in text what its buttons show::

        explorer = PoolExplorer(BlockSpaceManager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=0))
        assert explorer.manager.get_num_free_gpu_blocks() == 8
        explorer

        print(explorer.add(num_tokens=9))
        print(explorer.swap_out("A"))

    The cell that shows it needs no tag for nbval: what is left of it in the file is a picture and text. A sequence
    goes by one letter, a request by its first sequence's.

    Args:
        manager: anything with BlockSpaceManager's methods. It is used, not copied; block tables that it has already
            are shown under their seq_id.
    """

    def __init__(self, manager: Any) -> None:
        self.manager = manager
        self.log: list[str] = []
        self._reader = MemoryReader(manager)
        self._living: dict[str, Living] = {}  # by letter
        self._first_id = max(manager.block_tables, default=-1) + 1
        self._num_made = 0  # sequences so far
        self._pick = ipywidgets.Dropdown(description="Sequence", layout={"width": "11em"})
        self._picture = PictureView()
        self._heading, self._table, self._log = (ipywidgets.HTML() for _ in range(3))
        self.widget = live_box([*self._controls(), self._heading, self._picture.widget, self._table, self._log])
        self._refresh()

    def add(self, num_tokens: int, *, same_text: bool = False) -> str:
        """A new request with a prompt of so many tokens; with `same_text` it begins as all such prompts do."""
        return self._do(f"add {num_tokens} tokens", lambda: self._add(num_tokens, same_text))

    def append(self, name: str) -> str:
        """One token more for a sequence."""
        return self._do(f"append to {name}", lambda: self._append(name))

    def fork(self, name: str) -> str:
        """A second sequence that goes on from where this one is, over the same blocks."""
        return self._do(f"fork {name}", lambda: self._fork(name))

    def free(self, name: str) -> str:
        """The sequence ends."""
        return self._do(f"free {name}", lambda: self._free(name))

    def swap_out(self, name: str) -> str:
        """The running sequences of this one's request move to the CPU."""
        return self._do(f"swap out {name}", lambda: self._swap_out(name))

    def swap_in(self, name: str) -> str:
        """The swapped sequences of this one's request move back to the GPU."""
        return self._do(f"swap in {name}", lambda: self._swap_in(name))

    def describe(self) -> str:
        """What the explorer shows, as text."""
        picture = attempt(self._draw)
        memory = picture if isinstance(picture, str) else picture.describe()
        return "\n".join([*self.log[-SHOWN:], *map(" | ".join, self._rows()), memory])

    def __repr__(self) -> str:
        return self.describe()

    def _ipython_display_(self) -> None:
        show(self.widget, "An explorer of a block manager", attempt(self._draw), self.describe())

    def _controls(self) -> list[Any]:
        tokens = ipywidgets.BoundedIntText(9, 1, MOST_TOKENS, description="Prompt tokens", layout={"width": "11em"})
        tokens.style.description_width = "initial"
        same = ipywidgets.Checkbox(False, description="same text as before", indent=False, layout={"width": "auto"})
        add = _button("Add request", lambda: self.add(tokens.value, same_text=same.value))
        methods = {
            "Append token": self.append,
            "Fork": self.fork,
            "Free": self.free,
            "Swap out": self.swap_out,
            "Swap in": self.swap_in,
        }
        actions = [_button(text, partial(self._act, method)) for text, method in methods.items()]
        layout = {"flex_flow": "row wrap", "align_items": "center"}
        return [ipywidgets.Box(row, layout=layout) for row in ([tokens, same, add], [self._pick, *actions])]

    def _act(self, method: Callable[[str], str]) -> None:
        """Do an operation with the sequence that is picked."""
        method(self._pick.value or "to act on")

    def _do(self, what: str, work: Callable[[], str]) -> str:
        """Do one operation; whatever comes of it is a line of the log, and is drawn."""
        try:
            outcome = work()
        except (ValueError, KeyError) as error:
            outcome = f"refused. {in_words(error)}"
        except Exception as error:  # noqa: BLE001  (a learner's manager may raise anything)
            outcome = f"the manager failed. {in_words(error)}"
        self.log.append(f"{what}: {outcome}")
        self._refresh()
        return self.log[-1]

    def _add(self, num_tokens: int, same_text: bool) -> str:
        if not 1 <= num_tokens <= MOST_TOKENS:
            raise ValueError(f"a prompt of {num_tokens} tokens; it can have 1 to {MOST_TOKENS} here")
        name = self._new_name()
        first = 0 if same_text else MOST_TOKENS * (self._num_made + 1)
        seq = Sequence(self._new_id(), range(first, first + num_tokens), self.manager.block_size)
        group = SequenceGroup(name, [seq])
        answer = _status("can_allocate", self.manager.can_allocate(group))
        if answer != "OK":
            needs = f"the prompt needs {seq.n_blocks} blocks, {self._room()}"
            return self._refusal(f"can_allocate says {answer}", needs, "allocate", group)
        self.manager.allocate(group)
        seq.status = SequenceStatus.RUNNING
        self._join(name, Living(seq, name))
        self._compute(seq)
        return f"can_allocate says OK. {name} has {num_tokens} tokens in {self._blocks(seq)}"

    def _append(self, name: str) -> str:
        """The manager meets a copy of the sequence with its new token, which it keeps only when all went well."""
        living = self._find(name)
        grown = living.seq.fork(living.seq.seq_id)
        grown.append_token_id(MOST_TOKENS**2 * (grown.seq_id + 1) + grown.get_len())
        group = self._group(name, grown)
        if not _truth("can_append_slots", self.manager.can_append_slots(group)):
            needs = f"it asks for a free block for each running sequence of the request, needed or not, {self._room()}"
            return self._refusal("can_append_slots says False", needs, "append_slots", grown)
        before = list(self.manager.get_block_table(grown))
        pairs = _pairs("append_slots", self.manager.append_slots(grown))
        living.seq = grown
        self._compute(grown)
        done = _what_append_did(before, self.manager.get_block_table(grown), pairs)
        return f"{name} has {grown.get_len()} tokens; {done}"

    def _fork(self, name: str) -> str:
        parent, child_name, before = self._find(name), self._new_name(), self._num_free()
        child = parent.seq.fork(self._new_id())
        self.manager.fork(parent.seq, child)
        self._join(child_name, Living(child, parent.request_id))
        taken = sum(before) - sum(self._num_free())
        return f"{child_name} goes on from {name} over the same {self._blocks(child)}; {taken} free blocks were taken"

    def _free(self, name: str) -> str:
        living, before = self._find(name), self._num_free()
        blocks = self._blocks(living.seq)
        self.manager.free(living.seq)
        del self._living[name]
        back = sum(self._num_free()) - sum(before)
        return f"{name} let go of {blocks}; {back} of them came back to the free ones"

    def _swap_out(self, name: str) -> str:
        group = self._group(name)
        if not _truth("can_swap_out", self.manager.can_swap_out(group)):
            return self._refusal("can_swap_out says False", "the CPU has too few free blocks", "swap_out", group)
        pairs = _pairs("swap_out", self.manager.swap_out(group))
        return self._moved(group, pairs, SequenceStatus.RUNNING, SequenceStatus.SWAPPED, "can_swap_out says True")

    def _swap_in(self, name: str) -> str:
        group = self._group(name)
        answer = _status("can_swap_in", self.manager.can_swap_in(group))
        if answer != "OK":
            needs = f"it needs its own blocks and one more for each swapped sequence, {self._room()}"
            return self._refusal(f"can_swap_in says {answer}", needs, "swap_in", group)
        pairs = _pairs("swap_in", self.manager.swap_in(group))
        return self._moved(group, pairs, SequenceStatus.SWAPPED, SequenceStatus.RUNNING, "can_swap_in says OK")

    def _moved(
        self, group: SequenceGroup, pairs: Pairs, before: SequenceStatus, after: SequenceStatus, answer: str
    ) -> str:
        moved = group.get_seqs(before)
        for seq in moved:
            seq.status = after
        if not moved:
            return f"{answer}, and nothing moved: no sequence of request {group.request_id} is {before.name}"
        names = [name for name, living in self._living.items() if living.seq in moved]
        return f"{answer}. Moved {' and '.join(names)}: {', '.join(map(arrows, pairs)) or 'no blocks'}"

    def _refusal(self, asked: str, needs: str, method: str, subject: Sequence | SequenceGroup) -> str:
        """Why not: what the manager says when it is asked all the same, on a copy; else the numbers it decided by."""
        try:
            manager, subject = copy.deepcopy((self.manager, subject))
            getattr(manager, method)(subject)
        except Exception as error:  # noqa: BLE001  (a learner's manager may raise anything)
            return f"refused, {asked}. {in_words(error)}"
        return f"refused, {asked}: {needs}"

    def _compute(self, seq: Sequence) -> None:
        """What a step does with blocks by content: stamps them, and marks them as computed afterwards."""
        if getattr(self.manager, "enable_caching", False):
            self.manager.access_all_blocks_in_seq(seq, float(len(self.log)))
            self.manager.mark_blocks_as_computed(SequenceGroup("step", [seq]))

    def _find(self, name: str) -> Living:
        if name not in self._living:
            raise ValueError(f"there is no sequence {name}, there are: {', '.join(self._living) or 'none, add one'}")
        return self._living[name]

    def _group(self, name: str, grown: Sequence | None = None) -> SequenceGroup:
        """The request of a sequence, with `grown` in its place where that is given."""
        request_id = self._find(name).request_id
        seqs = {other: living.seq for other, living in self._living.items() if living.request_id == request_id}
        return SequenceGroup(request_id, (seqs | ({name: grown} if grown else {})).values())

    def _new_name(self) -> str:
        """The next letter in the alphabet that nobody has."""
        for place in range(self._num_made, self._num_made + len(LETTERS)):
            if (name := LETTERS[place % len(LETTERS)]) not in self._living:
                return name
        raise ValueError(f"{len(LETTERS)} sequences are as many as have letters; free one first")

    def _new_id(self) -> int:
        return self._first_id + self._num_made

    def _join(self, name: str, living: Living) -> None:
        self._living[name] = living
        self._num_made += 1

    def _num_free(self) -> tuple[int, int]:
        return self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks()

    def _room(self) -> str:
        kept = self.manager.watermark_blocks
        watermark = f" and admission leaves {kept} of them free, the watermark" if kept else ""
        return f"{self._num_free()[0]} GPU blocks are free{watermark}"

    def _blocks(self, seq: Sequence) -> str:
        numbers = self.manager.get_block_table(seq)
        return f"{'block' if len(numbers) == 1 else 'blocks'} {arrows(numbers)}"

    def _draw(self) -> draw.Picture:
        return draw.memory(self._reader, names={living.seq.seq_id: name for name, living in self._living.items()})

    def _rows(self) -> list[tuple[str, ...]]:
        """A row for each living sequence; its table as the manager has it, whatever that is."""
        rows: list[tuple[str, ...]] = []
        for name, living in self._living.items():
            try:
                blocks = self._blocks(living.seq)
            except Exception as error:  # noqa: BLE001  (a learner's manager may raise anything)
                blocks = in_words(error)
            rows.append((name, living.request_id, living.seq.status.name, f"{living.seq.get_len()} tokens", blocks))
        return rows

    def _refresh(self) -> None:
        latest = self.log[-1] if self.log else "Nothing done yet. Add a request."
        self._heading.value = strong_html(latest)
        self._picture.show(attempt(self._draw))
        self._table.value = table_html(HEADS, self._rows()) if self._living else ""
        self._log.value = log_html(self.log[-SHOWN:-1])
        picked = self._pick.value
        self._pick.options = tuple(self._living)
        self._pick.value = picked if picked in self._living else next(iter(self._living), None)


def _button(text: str, act: Callable[[], object]) -> Any:
    button = ipywidgets.Button(description=text, tooltip=text, layout={"width": "auto"})
    button.on_click(lambda _: act())
    return button


def _status(method: str, answer: Any) -> str:
    """OK, LATER or NEVER, as a manager answered. TypeError for anything else."""
    name = getattr(answer, "name", None)
    if name not in {status.name for status in AllocStatus}:
        raise TypeError(f"{method} returned {answer!r}, it should be OK, LATER or NEVER of AllocStatus")
    return str(name)


def _truth(method: str, answer: Any) -> bool:
    """Yes or no, as a manager answered. TypeError for anything else, None above all, which would pass for a no."""
    if not isinstance(answer, bool):
        raise TypeError(f"{method} returned {answer!r}, it should be True or False")
    return answer


def _pairs(method: str, answer: Any) -> Pairs:
    """(source, destination) block numbers, as a manager answered. TypeError for anything else."""
    if isinstance(answer, list) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in answer):
        return answer
    raise TypeError(f"{method} returned {answer!r}, it should be a list of (source, destination) block numbers")


def _what_append_did(before: list[int], after: list[int], pairs: Pairs) -> str:
    if pairs:
        copies = " and ".join(f"block {source} is copied to {target}" for source, target in pairs)
        return f"{copies} first, because it was shared"
    if len(after) > len(before):
        return f"block {after[-1]} is new"
    if after[-1] != before[-1]:
        return f"block {after[-1]} takes the place of block {before[-1]}"
    return f"the token has room in block {after[-1]}"
