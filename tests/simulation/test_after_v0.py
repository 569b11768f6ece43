"""What came after V0, in small: V1's manager against a recording of the real one, the tree against plain comparison."""

import copy
import json
import random
from itertools import takewhile

import pytest

from refimpl import AllocStatus, BlockSpaceManager, Sequence, SequenceGroup
from refimpl.simulation.after_v0 import FreeKVCacheBlockQueue, HitsSubtracted, KVCacheBlock, KVCacheManager, RadixTree

RECORDING = "after_v0/vllm_0_32_0_kv_cache_manager.jsonl"


def runs(data):
    """The recorded histories: block_size, num_gpu_blocks, operations. Block ids are vLLM's less its null block."""
    found = []
    for line in data.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if "op" in entry:
            found[-1][2].append(entry)
        else:
            found.append((entry["block_size"], entry["num_gpu_blocks"], []))
    return found


def ids(blocks):
    return None if blocks is None else [block.block_id for block in blocks]


def test_every_answer_is_that_of_vllm_0_32_0(pytestconfig):
    histories = runs(pytestconfig.rootpath / "tests" / "data" / RECORDING)
    refused = hits_found = 0
    for block_size, num_gpu_blocks, ops in histories:
        manager, token_ids = KVCacheManager(block_size, num_gpu_blocks), {}
        for op in ops:
            name = op["id"]
            if op["op"] == "free":
                manager.free(name)
            else:
                hits = []
                if op["op"] == "new":
                    token_ids[name] = op["prompt"]
                    hits = manager.get_computed_blocks(token_ids[name])
                    assert ids(hits) == op["hits"], op
                else:
                    token_ids[name] = token_ids[name] + op["append"]
                new = manager.allocate_slots(name, token_ids[name][: op["upto"]], hits)
                assert ids(new) == op["new"], op
                refused += new is None
                hits_found += len(hits)
            assert ids(manager.free_block_queue) == op["queue"], op
    assert len(histories) == 6
    assert min(refused, hits_found) > 50  # the recording holds what it is there to show


def queue_is_sound(queue, blocks):
    forward = list(queue)
    backward, block = [], queue._end.prev_free_block
    while block is not queue._end:
        backward.append(block)
        block = block.prev_free_block
    assert forward == backward[::-1]
    assert len(forward) == queue.num_free_blocks
    assert set(forward) == blocks


def test_the_queue_is_a_list_that_moves_nothing_else():
    chance = random.Random(0)
    blocks = [KVCacheBlock(number) for number in range(12)]
    queue, model = FreeKVCacheBlockQueue(blocks[:6]), blocks[:6]
    for _ in range(2000):
        out = [block for block in blocks if block not in model]
        what = chance.choice(["popleft", "remove", "append", "prepend_n"])
        if what == "popleft" and model:
            assert queue.popleft() is model.pop(0)
        elif what == "remove" and model:
            block = model.pop(chance.randrange(len(model)))
            queue.remove(block)
        elif what == "append" and out:
            queue.append(out[0])
            model.append(out[0])
        elif what == "prepend_n":
            some = chance.sample(out, min(len(out), 2))
            queue.prepend_n(some)
            model[:0] = some
        assert list(queue) == model
        queue_is_sound(queue, set(model))


def test_an_empty_queue_says_so():
    queue = FreeKVCacheBlockQueue([])
    with pytest.raises(ValueError, match="no block is free"):
        queue.popleft()
    assert queue.num_free_blocks == 0


def group(seq_id, token_ids):
    return SequenceGroup(str(seq_id), [Sequence(seq_id, token_ids, block_size=4)])


def test_admission_asks_for_what_allocate_takes():
    chance, statuses = random.Random(1), []
    for _ in range(60):
        manager = HitsSubtracted(4, 14, 0, watermark=0.1, enable_caching=True)
        for seq_id in range(12):
            new = group(seq_id, [chance.randrange(2) for _ in range(chance.randrange(1, 24))])
            free, plain, status = (
                manager.get_num_free_gpu_blocks(),
                plain_status(manager, new),
                manager.can_allocate(new),
            )
            if status is not AllocStatus.NEVER:
                if taken(manager, new) <= free - manager.watermark_blocks:
                    assert status is AllocStatus.OK
                else:
                    assert status is plain is AllocStatus.LATER
            statuses.append((plain.name, status.name))
            if status is AllocStatus.OK:
                manager.allocate(new)
                if chance.random() < 0.4:
                    manager.free(new.seqs[0])
    assert set(statuses) == {("OK", "OK"), ("LATER", "OK"), ("LATER", "LATER")}


def plain_status(manager, new):
    """V0's answer in the same state."""
    return BlockSpaceManager.can_allocate(manager, new)


def taken(manager, new):
    """Free blocks that the prompt takes, found out by trying it in a copy."""
    trial = copy.deepcopy(manager)
    try:
        trial.allocate(new)
    except ValueError:
        return manager.num_total_gpu_blocks + 1
    return manager.get_num_free_gpu_blocks() - trial.get_num_free_gpu_blocks()


def test_a_hit_that_nobody_holds_takes_a_free_block():
    manager = HitsSubtracted(4, 5, 0, watermark=0, enable_caching=True)
    first = group(0, list(range(16)))
    manager.allocate(first)
    manager.free(first.seqs[0])
    blocker = group(1, list(range(90, 94)))
    manager.allocate(blocker)
    assert manager.can_allocate(group(2, [*range(16), 50])) is AllocStatus.LATER  # 4 hits and a new one, 4 are free
    assert manager.can_allocate(group(2, list(range(16)))) is AllocStatus.OK


def in_common(one, other):
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_matches_as_comparing_with_every_text_does(seed):
    chance = random.Random(seed)
    tree, texts = RadixTree(), []
    for _ in range(80):
        text = [chance.randrange(2) for _ in range(chance.randrange(0, 12))]
        assert tree.match(text) == max((in_common(text, other) for other in texts), default=0)
        if chance.random() < 0.5:
            tree.insert(text)
            texts.append(text)
    assert tree.num_tokens() == len({tuple(text[:end]) for text in texts for end in range(1, len(text) + 1)})
    assert sum(int(line.split()[0]) for line in tree.lines()) == tree.num_tokens()
