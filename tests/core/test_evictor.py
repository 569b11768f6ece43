"""The order in which free blocks go: compared with sorting and with the plain form, and cheap at any size."""

import random

import pytest

from refimpl import Device, LRUEvictor, PhysicalTokenBlock, PlainEvictor


def make_block(number, last_accessed=0.0, num_hashed_tokens=0):
    block = PhysicalTokenBlock(Device.GPU, number, 4, block_hash=f"key {number}", num_hashed_tokens=num_hashed_tokens)
    block.last_accessed = last_accessed
    return block


def evictor_of(*blocks):
    evictor = LRUEvictor()
    for block in blocks:
        evictor.add(block)
    return evictor


def evict_all(evictor):
    return [evictor.evict() for _ in range(evictor.num_blocks)]


@pytest.mark.parametrize(
    ("stamps", "hashed", "order"),
    [
        ([5, 1, 3], [4, 4, 4], [1, 2, 0]),
        ([7, 7, 7], [4, 8, 12], [2, 1, 0]),
        ([7, 7, 7], [12, 8, 4], [0, 1, 2]),
        ([7, 7, 7], [8, 8, 8], [0, 1, 2]),
        ([2, 1, 2], [99, 4, 4], [1, 0, 2]),
    ],
)
def test_oldest_goes_first_then_the_tail_then_the_first_freed(stamps, hashed, order):
    """B14."""
    blocks = [make_block(i, *of) for i, of in enumerate(zip(stamps, hashed, strict=True))]
    assert evict_all(evictor_of(*blocks)) == [blocks[i] for i in order]


def test_an_empty_evictor_has_no_victim_and_no_key():
    """B14."""
    evictor = LRUEvictor()
    with pytest.raises(ValueError, match="0 free blocks"):
        evictor.evict()
    with pytest.raises(ValueError, match="none of the 0 free blocks has the key 'absent'"):
        evictor.remove("absent")


def test_a_block_is_here_once():
    block = make_block(0)
    evictor = evictor_of(block)
    with pytest.raises(ValueError, match="block 0 is here already"):
        evictor.add(block)
    evictor.add(make_block(1, last_accessed=-5))
    evictor.evict()
    with pytest.raises(ValueError, match="block 0 is here already"):
        evictor.add(block)
    assert evict_all(evictor) == [block]


@pytest.mark.parametrize("evicted_before", [False, True])
def test_a_block_that_was_taken_back_is_no_victim(evicted_before):
    first, taken, last = (make_block(i, last_accessed=i) for i in range(3))
    evictor = evictor_of(first, taken, last)
    if evicted_before:
        evictor.add(make_block(9, last_accessed=-9))
        evictor.evict()
    assert taken.block_hash in evictor
    assert evictor.remove(taken.block_hash) is taken
    assert taken.block_hash not in evictor
    with pytest.raises(ValueError, match="none of the 2 free blocks"):
        evictor.remove(taken.block_hash)
    assert sorted(evictor.get_block_hashes()) == ["key 0", "key 2"]
    assert evict_all(evictor) == [first, last]


def test_a_block_that_comes_back_is_judged_by_its_new_stamp():
    blocks = [make_block(i, last_accessed=i) for i in range(3)]
    evictor = evictor_of(make_block(9, last_accessed=-9), *blocks)
    evictor.evict()
    evictor.remove(blocks[0].block_hash)
    blocks[0].last_accessed = 7
    evictor.add(blocks[0])
    assert evict_all(evictor) == [blocks[1], blocks[2], blocks[0]]


def test_computed_is_cleared_by_eviction_and_kept_when_taken_back():
    """B10."""
    victim, kept = make_block(0, last_accessed=1), make_block(1, last_accessed=2)
    victim.computed = kept.computed = True
    evictor = evictor_of(victim, kept)
    assert evictor.evict().computed is False
    assert evictor.remove(kept.block_hash).computed is True


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_agree_with_sorting(seed):
    rng = random.Random(seed)
    evictor, free, held, turn = LRUEvictor(), [], [make_block(i) for i in range(40)], {}
    for now in range(2000):
        action = rng.random()
        if held and action < 0.5:
            block = held.pop(rng.randrange(len(held)))
            block.last_accessed, block.num_hashed_tokens = rng.randrange(4), rng.randrange(3)
            turn[block] = now
            free.append(block)
            evictor.add(block)
        elif free and action < 0.75:
            block = free.pop(rng.randrange(len(free)))
            assert evictor.remove(block.block_hash) is block
            held.append(block)
        elif free:
            block = min(free, key=lambda b: (b.last_accessed, -b.num_hashed_tokens, turn[b]))
            assert evictor.evict() is block
            free.remove(block)
            held.append(block)
        assert evictor.num_blocks == len(free)
        assert set(evictor.get_block_hashes()) == {b.block_hash for b in free}


@pytest.mark.parametrize("seed", range(20))
def test_the_plain_form_lives_the_same_life(seed):
    rng = random.Random(seed)
    both = fast, plain = LRUEvictor(), PlainEvictor()
    waiting, held = [], [make_block(i) for i in range(30)]
    for _ in range(1000):
        action = rng.random()
        if action < 0.45 and held:
            block = held.pop(rng.randrange(len(held)))
            block.last_accessed, block.num_hashed_tokens = rng.choice((-1, 1.5, 2, 3)), 4 * rng.randrange(3)
            waiting.append(block)
            assert [evictor.add(block) for evictor in both] == [None, None]
        elif action < 0.7 and waiting:
            block = waiting.pop(rng.randrange(len(waiting)))
            assert [evictor.remove(block.block_hash) for evictor in both] == [block, block]
            held.append(block)
        elif waiting:
            victim = fast.evict()
            victim.computed = True
            assert plain.evict() is victim
            assert victim.computed is False
            waiting.remove(victim)
            held.append(victim)
        assert fast.num_blocks == plain.num_blocks == len(waiting)
        assert set(fast.get_block_hashes()) == set(plain.get_block_hashes())
        assert all((block.block_hash in evictor) is (block in waiting) for block in waiting + held for evictor in both)


def test_the_plain_form_refuses_what_the_fast_one_refuses():
    said = []
    for evictor in (LRUEvictor(), PlainEvictor()):
        evictor.add(make_block(0))
        for call, *args in ((evictor.add, make_block(0)), (evictor.remove, "absent")):
            with pytest.raises(ValueError, match="key") as refused:
                call(*args)
            said.append(str(refused.value))
        evictor.evict()
        with pytest.raises(ValueError, match="0 free blocks") as refused:
            evictor.evict()
        said.append(str(refused.value))
    assert said[:3] == said[3:]


class CountingStamp(float):
    """A stamp that counts how often it is looked at."""

    looks = 0

    def __lt__(self, other):
        CountingStamp.looks += 1
        return float(self) < float(other)

    def __eq__(self, other):
        CountingStamp.looks += 1
        return float(self) == float(other)

    __hash__ = float.__hash__


@pytest.mark.parametrize("size", [64, 4096])
def test_eviction_among_equal_stamps_does_not_look_at_all_of_them(size):
    evictor = evictor_of(*(make_block(i, CountingStamp(7), num_hashed_tokens=4) for i in range(size)))
    evictor.evict()
    CountingStamp.looks = 0
    for number in range(size, size + 200):
        evictor.add(make_block(number, CountingStamp(7), num_hashed_tokens=4))
        evictor.evict()
    assert CountingStamp.looks / 200 < 100


def num_items(container):
    """Everything in it, lists within lists included."""
    if not isinstance(container, list | tuple | dict):
        return 1
    return sum(num_items(item) for item in (container.values() if isinstance(container, dict) else container))


def test_memory_stays_bounded():
    """Whatever it keeps its blocks in never holds much more than the blocks that are here."""
    rng = random.Random(0)
    evictor, blocks = LRUEvictor(), [make_block(i, last_accessed=i % 3) for i in range(64)]
    for block in blocks:
        evictor.add(block)
    for _ in range(100_000):
        if rng.random() < 0.9:
            block = evictor.remove(rng.choice(blocks).block_hash)
        else:
            block = evictor.evict()
        evictor.add(block)
    assert sum(num_items(getattr(evictor, name)) for name in LRUEvictor.__slots__) < 20 * len(blocks)
