"""Shorthand for requests and pools, in the field's words."""

from refimpl import BlockSpaceManager, Sequence, SequenceGroup, SequenceStatus


def make_manager(block_size=4, num_gpu_blocks=8, num_cpu_blocks=8, watermark=0.0):
    return BlockSpaceManager(block_size, num_gpu_blocks, num_cpu_blocks, watermark=watermark)


def make_group(prompt_len, *, block_size=4, seq_ids=(0,), request_id="r"):
    """A request of WAITING sequences over one prompt of `prompt_len` tokens."""
    return SequenceGroup(request_id, [Sequence(seq_id, range(prompt_len), block_size) for seq_id in seq_ids])


def admit(manager, group):
    """Allocate the group's prompt; its sequences run from now on. Returns them."""
    manager.allocate(group)
    for seq in group.get_seqs(SequenceStatus.WAITING):
        seq.status = SequenceStatus.RUNNING
    return group.seqs


def fork(manager, group, parent, child_id):
    """A child of `parent` that shares its table."""
    child = parent.fork(child_id)
    group.add(child)
    manager.fork(parent, child)
    return child


def append(manager, seq, token_id=99):
    """One token joins the sequence, then the manager makes room for it."""
    seq.append_token_id(token_id)
    return manager.append_slots(seq)


def work(scheduler, group):
    """A worker's part for a group that ran: a prompt becomes as many sequences as were asked for, and each of them has
    a token of its own. Returns those that ran.
    """
    (parent, *_) = group.get_seqs(SequenceStatus.RUNNING)
    for number in range(group.get_max_num_running_seqs() - group.num_unfinished_seqs()):
        child = parent.fork(parent.seq_id + number + 1)
        group.add(child)
        scheduler.fork_seq(parent, child)
    running = group.get_seqs(SequenceStatus.RUNNING)
    for seq in running:
        seq.append_token_id(1000 + seq.seq_id)
    return running


def finish(scheduler, seq):
    """The sequence has all its tokens."""
    seq.status = SequenceStatus.FINISHED_STOPPED
    scheduler.free_seq(seq)


def state(manager):
    """All that a refused call must leave as it was."""
    return (
        {seq_id: [(id(b), b.ref_count) for b in table] for seq_id, table in manager.block_tables.items()},
        [id(block) for block in manager.gpu_allocator.free_blocks],
        [id(block) for block in manager.cpu_allocator.free_blocks],
    )


def assert_books_balance(manager):
    """free + held = total on each device, and ref_count is the number of tables."""
    tables = list(manager.block_tables.values())
    held = {id(block): block for table in tables for block in table}
    for allocator in (manager.gpu_allocator, manager.cpu_allocator):
        here = [block for block in held.values() if block.device is allocator.device]
        assert allocator.get_num_free_blocks() + len(here) == allocator.get_num_total_blocks()
        assert len({block.block_number for block in here}) == len(here)
    for block in held.values():
        assert block.ref_count == sum(block in table for table in tables)
