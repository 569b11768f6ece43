"""The pool explorer: each button is one call of the manager or a refusal in words, and no manager kills it."""

import re
import time

import matplotlib.pyplot as plt
import pytest

from refimpl import BlockSpaceManager, Sequence, SequenceGroup
from refimpl.viz.widgets import PoolExplorer
from refimpl.viz.widgets_explorer import SHOWN

BLOCK_SIZE = 4
SLOW = 0.5  # seconds a redraw may take where others run beside it; alone it takes less than a tenth


def explorer(num_gpu_blocks=8, num_cpu_blocks=0, **options):
    return PoolExplorer(BlockSpaceManager(BLOCK_SIZE, num_gpu_blocks, num_cpu_blocks, **options))


def press(explorer, text):
    button = next(widget for row in explorer.widget.children[1:3] for widget in row.children if said(widget) == text)
    button.click()
    return explorer.log[-1]


def said(widget):
    return getattr(widget, "description", None)


def test_a_prompt_is_asked_for_then_allocated():
    explored = explorer()
    assert explored.add(9) == "add 9 tokens: can_allocate says OK. A has 9 tokens in blocks 7 → 6 → 5"
    assert explored.manager.get_num_free_gpu_blocks() == 5
    assert "A holds 3 blocks: 7, 6, 5" in explored.describe()
    assert explored.add(4).endswith("B has 4 tokens in block 4")
    assert repr(explored) == explored.describe()


def test_a_token_lands_in_the_last_block_in_a_new_one_or_in_a_copy():
    explored = explorer()
    explored.add(7)
    assert explored.append("A").endswith("A has 8 tokens; the token has room in block 6")
    assert explored.append("A").endswith("A has 9 tokens; block 5 is new")
    explored.fork("A")
    assert explored.append("B").endswith("B has 10 tokens; block 5 is copied to 4 first, because it was shared")
    assert explored.append("A").endswith("A has 10 tokens; the token has room in block 5")


def test_prompts_of_the_same_text_share_their_blocks():
    explored = explorer(enable_caching=True)
    explored.add(8, same_text=True)
    line = explored.add(8, same_text=True)
    assert line.endswith("B has 8 tokens in blocks 0 → 1")
    assert "Shared: block 0 by A and B" in explored.describe()


def test_a_prompt_longer_than_another_of_the_same_text_shares_its_beginning():
    explored = explorer(enable_caching=True)
    explored.add(8, same_text=True)
    assert explored.add(12, same_text=True).endswith("in blocks 0 → 1 → 2")


def test_the_box_beside_the_button_says_whether_the_text_is_the_same():
    explored = explorer(enable_caching=True)
    (same,) = (widget for widget in explored.widget.children[1].children if said(widget) == "same text as before")
    same.value = True
    for _ in range(2):
        press(explored, "Add request")
    assert "Shared: block 0 by A and B" in explored.describe()


def test_prompts_of_different_text_share_nothing():
    explored = explorer(enable_caching=True)
    explored.add(8)
    explored.add(8)
    assert "Shared" not in explored.describe()


def test_blocks_that_keep_their_content_are_shown_as_cached():
    explored = explorer(enable_caching=True)
    explored.add(8, same_text=True)
    explored.free("A")
    assert "Free, content kept (cached): 0 to 1" in explored.describe()
    assert explored.add(8, same_text=True).endswith("in blocks 0 → 1")


def test_the_content_used_last_is_kept_longest():
    explored = explorer(num_gpu_blocks=4, enable_caching=True)
    explored.add(4)
    explored.add(4)
    explored.free("B")
    explored.free("A")
    explored.add(12)
    assert "Free, content kept (cached): 1\n" in explored.describe()


def test_a_token_that_fills_a_block_is_computed_content_too():
    explored = explorer(enable_caching=True)
    explored.add(7)
    explored.append("A")
    explored.free("A")
    assert "Free, content kept (cached): 0 to 1" in explored.describe()


def test_fork_and_free_say_what_they_take_and_give_back():
    explored = explorer()
    explored.add(8)
    assert explored.fork("A") == "fork A: B goes on from A over the same blocks 7 → 6; 0 free blocks were taken"
    assert explored.free("A") == "free A: A let go of blocks 7 → 6; 0 of them came back to the free ones"
    assert explored.free("B") == "free B: B let go of blocks 7 → 6; 2 of them came back to the free ones"


def test_a_request_is_swapped_out_and_in_as_a_whole():
    explored = explorer(num_cpu_blocks=8)
    explored.add(8)
    explored.fork("A")
    out = explored.swap_out("B")
    assert out.startswith("swap out B: can_swap_out says True. Moved A and B: 7 → ")
    assert explored.manager.get_num_free_gpu_blocks() == 8
    assert "A | A | SWAPPED | 8 tokens" in explored.describe()
    assert "nothing moved: no sequence of request A is RUNNING" in explored.swap_out("A")
    assert "ValueError: sequence 0 has its blocks on the CPU, not on the GPU" in explored.append("A")
    assert explored.swap_in("A").startswith("swap in A: can_swap_in says OK. Moved A and B: ")
    assert "A | A | RUNNING | 8 tokens" in explored.describe()
    assert "nothing moved: no sequence of request A is SWAPPED" in explored.swap_in("A")


def test_a_swap_without_room_on_the_cpu_is_refused_in_the_managers_own_words():
    explored = explorer(num_cpu_blocks=1)
    explored.add(8)
    said = "can_swap_out says False. ValueError: Out of memory: needs 2 blocks, the CPU pool has 1 free of 1"
    assert explored.swap_out("A") == f"swap out A: refused, {said}"
    assert "A | A | RUNNING | 8 tokens | blocks 7 → 6" in explored.describe()


def test_a_refusal_changes_nothing():
    explored = explorer(num_cpu_blocks=1)
    explored.add(20)
    manager = explored.manager
    before = (dict(manager.block_tables), manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
    for line in (explored.add(40), explored.add(16), explored.swap_out("A")):
        assert "refused" in line
    after = (dict(manager.block_tables), manager.get_num_free_gpu_blocks(), manager.get_num_free_cpu_blocks())
    assert before == after
    assert explored.log[0].startswith("add 20 tokens: can_allocate says OK")


def test_never_later_and_the_watermark_are_told_apart():
    explored = explorer(watermark=0.25)
    assert "refused, can_allocate says NEVER: the prompt needs 7 blocks, 8 GPU blocks are free" in explored.add(28)
    explored.add(16)
    assert explored.add(12).endswith(
        "refused, can_allocate says LATER: the prompt needs 3 blocks, 4 GPU blocks are free and admission leaves 2 of "
        "them free, the watermark"
    )
    assert "LATER. ValueError: Out of memory: needs 5 blocks, the GPU pool has 4 free of 8" in explored.add(20)


def test_a_token_that_has_room_is_refused_when_nothing_is_free():
    """can_append_slots asks for a block for each running sequence, needed or not."""
    explored = explorer(num_gpu_blocks=2)
    explored.add(7)
    line = explored.append("A")
    assert "refused, can_append_slots says False: it asks for a free block for each running sequence" in line
    assert line.endswith("needed or not, 0 GPU blocks are free"), "no word of a watermark that is none"
    assert "A | A | RUNNING | 7 tokens" in explored.describe()


def test_a_swap_in_keeps_a_block_for_the_next_token():
    explored = explorer(num_gpu_blocks=3, num_cpu_blocks=3)
    explored.add(8)
    explored.swap_out("A")
    explored.add(4)
    assert "refused, can_swap_in says LATER: it needs its own blocks and one more" in explored.swap_in("A")


@pytest.mark.parametrize("num_tokens", [0, -1, 1001])
def test_a_prompt_of_no_length_is_refused(num_tokens):
    assert f"a prompt of {num_tokens} tokens; it can have 1 to 1000 here" in explorer().add(num_tokens)


def test_a_sequence_that_is_not_there_is_refused_by_name():
    explored = explorer()
    assert explored.free("Z").endswith("refused. ValueError: there is no sequence Z, there are: none, add one")
    explored.add(4)
    assert explored.fork("Z").endswith("there is no sequence Z, there are: A")


def test_a_sequence_that_was_freed_behind_the_explorers_back_is_refused_in_the_managers_words():
    explored = explorer()
    explored.add(5)
    explored.manager.free(Sequence(0, range(5), BLOCK_SIZE))
    said = "KeyError: sequence 0 has no block table: allocate its group first"
    assert explored.free("A") == f"free A: refused. {said}"
    assert f"A | A | RUNNING | 5 tokens | {said}" in explored.describe()


def test_what_is_said_of_a_name_is_text_not_html():
    explored = explorer()
    explored.free("<b>")
    assert "there is no sequence &lt;b&gt;" in explored._heading.value


def test_letters_are_used_again_and_run_out_in_words():
    explored = explorer(num_gpu_blocks=40)
    for _ in range(26):
        explored.add(4)
    assert explored.add(4).endswith("refused. ValueError: 26 sequences are as many as have letters; free one first")
    explored.free("C")
    assert ". C has 4 tokens" in explored.add(4)


def test_tables_that_the_manager_has_already_are_shown_and_left_alone():
    manager = BlockSpaceManager(BLOCK_SIZE, 8, 0)
    manager.allocate(SequenceGroup("stranger", [Sequence(3, range(4), BLOCK_SIZE)]))
    explored = PoolExplorer(manager)
    explored.add(4)
    assert "seq 3" in explored.describe()
    assert sorted(manager.block_tables) == [3, 4]


def test_every_button_does_what_the_method_does():
    explored = explorer(num_cpu_blocks=8)
    assert press(explored, "Append token").endswith("there is no sequence to act on, there are: none, add one")
    assert press(explored, "Add request").startswith("add 9 tokens: can_allocate says OK. A has")
    assert press(explored, "Append token").startswith("append to A: A has 10 tokens")
    assert press(explored, "Fork").startswith("fork A: B goes on")
    explored._pick.value = "B"
    assert press(explored, "Append token").startswith("append to B: B has 11 tokens")
    assert press(explored, "Swap out").startswith("swap out B: can_swap_out says True")
    assert press(explored, "Swap in").startswith("swap in B: can_swap_in says OK")
    assert press(explored, "Free").startswith("free B: B let go")
    assert explored._pick.options == ("A",)
    assert explored._pick.value == "A"


def test_the_pick_stays_as_long_as_its_sequence():
    explored = explorer()
    explored.add(4)
    explored.add(4)
    explored._pick.value = "B"
    explored.add(4)
    assert explored._pick.options == ("A", "B", "C")
    assert explored._pick.value == "B"


def test_the_latest_line_stands_first_and_the_ones_before_in_the_log():
    explored = explorer()
    explored.add(4)
    explored.free("A")
    assert "free A: A let go" in explored._heading.value
    assert "add 4 tokens" in explored._log.value
    assert "free A" not in explored._log.value
    for _ in range(SHOWN):
        explored.add(4)
    assert len(explored._log.value.splitlines()) == SHOWN - 1
    assert len(explored.log) == SHOWN + 2


def test_F15_twenty_presses_leave_no_figure_open_and_show_one_picture(capsys):
    """Old plots pile up or none appears."""
    explored = explorer(num_gpu_blocks=16)
    explored.add(4)
    figures = plt.get_fignums()
    for turn in range(20):
        press(explored, "Append token")
        assert explored._picture.widget.value.count("<img") == 1
        blocks = re.search(r"A holds (\d+) block", explored._picture.widget.value)[1]
        assert int(blocks) == -(-(5 + turn) // BLOCK_SIZE)
    assert plt.get_fignums() == figures == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.alone
def test_a_press_over_256_blocks_is_drawn_in_time():
    explored = explorer(num_gpu_blocks=256, num_cpu_blocks=256)
    for _ in range(12):
        explored.add(70)
    taken = []
    for _ in range(9):
        start = time.perf_counter()
        press(explored, "Fork" if len(taken) < 1 else "Append token")
        taken.append(time.perf_counter() - start)
    assert sorted(taken)[len(taken) // 2] < SLOW, taken


class Odd(BlockSpaceManager):
    """A learner's manager, half done."""


def raises(*_):
    raise IndexError("list index out of range")


def returns_none(*_):
    return None


@pytest.mark.parametrize("method", ["can_allocate", "allocate"])
def test_a_manager_that_raises_something_odd_is_told_of_and_goes_on(method, monkeypatch):
    monkeypatch.setattr(Odd, method, raises, raising=False)
    explored = PoolExplorer(Odd(BLOCK_SIZE, 8, 8))
    assert explored.add(5) == "add 5 tokens: the manager failed. IndexError: list index out of range"
    monkeypatch.undo()
    assert "A has 5 tokens" in explored.add(5)


def test_a_manager_that_refuses_and_would_have_failed_is_said_to_refuse(monkeypatch):
    monkeypatch.setattr(Odd, "allocate", raises, raising=False)
    line = PoolExplorer(Odd(BLOCK_SIZE, 2, 0)).add(20)
    assert line == "add 20 tokens: refused, can_allocate says NEVER. IndexError: list index out of range"


def test_a_manager_is_asked_for_a_slot_with_the_new_token_in_the_sequence(monkeypatch):
    asked = []
    answers = BlockSpaceManager.can_append_slots

    def looks(self, group):
        asked.append([seq.get_len() for seq in group.get_seqs()])
        return answers(self, group)

    monkeypatch.setattr(Odd, "can_append_slots", looks, raising=False)
    explored = PoolExplorer(Odd(BLOCK_SIZE, 8, 0))
    explored.add(5)
    explored.fork("A")
    explored.append("B")
    assert asked == [[5, 6]]


def test_an_answer_that_is_none_of_the_three_is_said_to_be_wrong(monkeypatch):
    monkeypatch.setattr(Odd, "can_allocate", returns_none, raising=False)
    said = "TypeError: can_allocate returned None, it should be OK, LATER or NEVER of AllocStatus"
    assert PoolExplorer(Odd(BLOCK_SIZE, 8, 8)).add(5) == f"add 5 tokens: the manager failed. {said}"


def test_a_manager_that_moves_the_last_block_is_told_of(monkeypatch):
    def moves(self, seq):
        self.block_tables[seq.seq_id][-1].block_number = 5
        return []

    monkeypatch.setattr(Odd, "append_slots", moves, raising=False)
    explored = PoolExplorer(Odd(BLOCK_SIZE, 8, 8))
    explored.add(2)
    assert explored.append("A") == "append to A: A has 3 tokens; block 5 takes the place of block 7"


def test_an_error_without_words_is_told_by_its_name(monkeypatch):
    def fails(*_):
        raise AssertionError

    monkeypatch.setattr(Odd, "allocate", fails, raising=False)
    assert PoolExplorer(Odd(BLOCK_SIZE, 8, 8)).add(5) == "add 5 tokens: the manager failed. AssertionError"


@pytest.mark.parametrize("wrong", [raises, returns_none])
@pytest.mark.parametrize(
    "method",
    [
        "can_allocate",
        "can_append_slots",
        "append_slots",
        "can_swap_out",
        "swap_out",
        "can_swap_in",
        "swap_in",
        "get_block_table",
        "get_num_free_gpu_blocks",
        "free",
        "fork",
    ],
)
def test_whatever_a_method_does_the_explorer_lives(method, wrong, monkeypatch):
    """A stub returns None, a half-done method raises something odd: each is a line, and the picture is kept."""
    explored = PoolExplorer(Odd(BLOCK_SIZE, 8, 8))
    explored.add(5)
    monkeypatch.setattr(Odd, method, wrong, raising=False)
    lines = [
        explored.add(4),
        explored.append("A"),
        explored.fork("A"),
        explored.swap_out("A"),
        explored.swap_in("A"),
        explored.free("A"),
        explored.describe(),
    ]
    if wrong is raises or method not in {"free", "fork"}:
        assert any(re.search("IndexError|None|TypeError", line) for line in lines), lines
    assert explored._heading.value


def test_a_table_that_lists_a_block_outside_the_pool_is_told_in_words():
    explored = explorer()
    explored.add(5)
    explored.manager.block_tables[0][0].block_number = 99
    explored.fork("A")
    assert "There is no picture of this: ValueError: block number 99" in explored._picture.widget.value
    assert "There is no picture of this" in explored.describe()


def test_a_count_that_is_wrong_is_ringed_not_hidden():
    explored = explorer()
    explored.add(5)
    explored.manager.block_tables[0][0].ref_count = 2
    explored.append("A")
    assert "Mismatch: block 7 has ref_count 2, and 1 table holds it (A)" in explored._picture.widget.value
