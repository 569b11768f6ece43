"""10-gather: a sequence's tokens, in their order.

Slots hold their own numbers, so that what was read says where it came from.
"""

from __future__ import annotations

import random
from typing import Any

from refimpl.checks.attention_account import finite, rounded, said_layout, said_sizes, same
from refimpl.checks.attention_layouts import LAYOUTS, NOT_A_BLOCK
from refimpl.checks.attention_thoughts import gather_thoughts, recognised
from refimpl.checks.attention_world import KEEPS, SEEDS, TENSOR, TOKENS_FIRST, CallsWorld, changed, plain, telling
from refimpl.checks.ch10_paged_attention.online_softmax import OF_BLOCKS
from refimpl.checks.step import LoadedLater, Operation, Setup, Step, counted

SLOTS = "each token is read from the slot that the table names"
TAIL = "the empty end of the last block is left out"
PADDING = "entries behind the last block are not used"
NO_ROWS = "no tokens give no rows"
STRIDED = "a cache of any strides is read"


class _GatherWorld(CallsWorld):
    """A cache in which every slot holds its number, and a block table."""

    def possible(self, operation: Operation) -> bool:
        _, table, num_tokens, _ = operation
        needed = -(-num_tokens // self.setup["block_size"])
        return needed <= len(table) and all(block < self.setup["num_blocks"] for block in table[:needed])

    def any_call(self, rng: random.Random) -> Operation:
        num_blocks, size = self.setup["num_blocks"], self.setup["block_size"]
        table = rng.sample(range(num_blocks), rng.randint(1, min(num_blocks, 4)))
        num_tokens = rng.choice((len(table) * size, rng.randint(0, len(table) * size)))
        padding = rng.choice(((), (), (0, 1), (999_999,)))
        return "gather", (*table, *padding), num_tokens, rng.choice(LAYOUTS)

    def ask(self, *arguments: Any) -> None:
        import torch

        from refimpl.checks.attention_inputs import numbered_cache

        table, num_tokens, layout = arguments
        setup, size = self.setup, self.setup["block_size"]
        sizes = setup["num_blocks"], size, setup["num_kv_heads"], setup["num_dims"]
        cache = numbered_cache(*sizes, layout)
        before = cache.clone()
        names = ("num_blocks", "block_size", "num_kv_heads", "head_dim")
        given = said_sizes(names, sizes) + said_layout(layout)
        self.log.note(f"cache = numbered_cache({given})    # slot s holds s, s.01 …")
        raises: tuple[type[Exception], str] | None = None
        if self.telling and self.answered and NOT_A_BLOCK in table:
            raises = (IndexError, "padding-read")
        elif self.telling and self.answered and layout != LAYOUTS[0]:
            raises = (RuntimeError, "takes-a-view")
        entries = f"{list(table)}" if table else "[], dtype=torch.int64"
        line = f"gather(cache, torch.tensor({entries}), {num_tokens})"
        block_table = torch.tensor(table, dtype=torch.int64)
        got = self.log.call(line, self.subject, cache, block_table, num_tokens, raises=raises)
        shape = (num_tokens, *sizes[2:])
        right = [table[t // size] * size + t % size for t in range(num_tokens)]
        told = {"tokens": counted(num_tokens, "token"), "size": size}
        rows = got.shape[0] if isinstance(got, torch.Tensor) and got.dim() == 3 else 0
        first = got[:, 0, 0].tolist() if rows and got.numel() else []
        slots = [round(number) for number in first] if finite(first) else []
        if self.telling and isinstance(got, torch.Tensor):
            name = recognised(gather_thoughts(got, slots, right, table, size))
            if name is not None:
                self._tell(name, right, slots, told)
        self.insist_on_tensor(TENSOR, "the result", got, shape, "nothing-returned" if got is None else None)
        rows_right = [before[slot // size, slot % size].tolist() for slot in right]
        wrong = next((t for t, row in enumerate(rows_right) if not same(got[t].tolist(), row)), None)
        in_part = _gather_property(num_tokens, size, len(table), layout)
        should = but = ""
        if wrong is not None:
            should = f"row {wrong} should be slot {right[wrong]}, {rounded(rows_right[wrong])}"
            but = f"it is {rounded(got[wrong].tolist())}"
        self.log.hold(in_part, wrong is None, should, but)
        if num_tokens:
            kept = not changed([cache, block_table], [before, torch.tensor(table)])
            self.log.hold(KEEPS, kept, "the cache and the table should stay as they were", "one has changed")
        self.check_last(TENSOR, got)

    def _tell(self, name: str, right: list[int], slots: list[int], told: dict[str, Any]) -> None:
        first = next((t for t, (a, b) in enumerate(zip(right, slots, strict=False)) if a != b), None)
        if first is not None:
            told |= {"position": first, "slot": right[first], "got": slots[first]}
        self.log.hold(
            TAIL if name in ("tail-left-out", "whole-blocks") else SLOTS,
            False,
            f"the rows should be the slots {right}",
            f"they are {slots}",
            name,
            rows=counted(len(slots), "row"),
            block=right[0] // told["size"],
            **told,
        )


def _gather_property(num_tokens: int, size: int, entries: int, layout: str) -> str:
    """What a call of this kind is about most."""
    if num_tokens == 0:
        return NO_ROWS
    if entries > -(-num_tokens // size):
        return PADDING
    if layout != LAYOUTS[0]:
        return STRIDED
    return TAIL if num_tokens % size else SLOTS


def _cache_sizes(rng: random.Random) -> Setup:
    return {
        "num_blocks": rng.choice((1, 3, 8)),
        "block_size": rng.choice((1, 2, 4)),
        "num_kv_heads": rng.choice((1, 2)),
        "num_dims": rng.choice((1, 3)),
        "seed": rng.randrange(1, SEEDS),
    }


SLOT_EACH = {"num_blocks": 8, "block_size": 4, "num_kv_heads": 1, "num_dims": 1}
WIDE = {**SLOT_EACH, "num_kv_heads": 2, "num_dims": 3}


STEP = Step(
    exercise_id="10-gather",
    title="a sequence's tokens, in their order",
    points=1,
    subject="gather",
    reference=LoadedLater("device.attention:gather", "device.attention:gathered_attention"),
    properties=(TENSOR, SLOTS, TAIL, PADDING, NO_ROWS, STRIDED, KEEPS),
    misconceptions={
        "nothing-returned": "The caller needs the tokens: yours returned None.",
        "blocks-not-joined": "The caller wants tokens, one a row: put the blocks end to end, so that two axes "
        "become one.",
        "tail-left-out": "The last block counts as well when it is only partly filled: {tokens} in blocks of "
        "{size} were asked for, and yours returned {rows}.",
        "whole-blocks": "Behind the last token its block holds nothing, or another's old tokens: {tokens} were "
        "asked for, and yours returned {rows}.",
        "newest-token-left-out": "All {tokens} lie in the cache, the newest one too: yours returned {rows}.",
        "logical-for-physical": "The tokens begin in block block_table[0], which is block {block} here: yours took "
        "position {position} for a slot, and the table names slot {slot}.",
        "number-not-multiplied": "Before block {block} lie {block} others of {size} slots each: position "
        "{position} is slot {slot}, and yours read slot {got}.",
        "runs-on-in-memory": "Where one block ends the next may begin anywhere: position {position} is slot "
        "{slot}, and yours ran on to slot {got}.",
        "order-of-memory": "The order of the text is the order of the table: position {position} is slot {slot}, "
        "and yours went through the blocks by their numbers.",
        "first-block-for-all": "Each block of the text has its own entry in the table: position {position} is slot "
        "{slot}, and yours read slot {got}, in the first block once more.",
        "one-position-on": "Positions count from 0: position {position} is slot {slot}, and yours read slot {got}, "
        "which is the next one's.",
        "padding-read": OF_BLOCKS["padding-read"],
        "takes-a-view": "In this cache the slots of a head lie together, so the axes of block and slot cannot be "
        "made one without copying, and torch refused: a view never copies.",
    },
    world=_GatherWorld,
    examples=(
        telling(SLOT_EACH, ("gather", (5, 2), 6, TOKENS_FIRST)),
        telling(SLOT_EACH, ("gather", (6, 1, 3), 12, TOKENS_FIRST)),
        telling(SLOT_EACH, ("gather", (6, 1, 3), 11, TOKENS_FIRST)),
        plain(SLOT_EACH, ("gather", (3,), 1, TOKENS_FIRST)),
        telling(SLOT_EACH, ("gather", (5, 2, 7), 8, TOKENS_FIRST)),
        telling(SLOT_EACH, ("gather", (5, 2), 8, TOKENS_FIRST), ("gather", (5, 2, 999_999), 8, TOKENS_FIRST)),
        telling(WIDE, ("gather", (5, 2), 8, TOKENS_FIRST), ("gather", (5, 2), 6, "heads first")),
        plain(SLOT_EACH, ("gather", (5,), 0, TOKENS_FIRST), ("gather", (), 0, TOKENS_FIRST)),
        telling(SLOT_EACH, ("gather", (5, 2), 8, TOKENS_FIRST), ("gather", (999_999,), 0, TOKENS_FIRST)),
    ),
    setups=_cache_sizes,
)
