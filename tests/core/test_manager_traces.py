"""Recordings of vLLM 0.5.4 (faults mended) replay exactly: every result, free count, block table and owner count.

The recordings are facts: one JSON object a line, the header first. `tests/README.md` says where they come from.
"""

import json
from pathlib import Path

import pytest

from refimpl import BlockSpaceManager, Sequence, SequenceGroup, SequenceStatus

TRACES = sorted((Path(__file__).parents[1] / "data/traces/manager").glob("*.jsonl"))
STATUS = {
    "WAITING": SequenceStatus.WAITING,
    "RUNNING": SequenceStatus.RUNNING,
    "SWAPPED": SequenceStatus.SWAPPED,
    "FINISHED": SequenceStatus.FINISHED_STOPPED,
}


class Replay:
    """One manager and the requests of one recording; a method for each operation, its result as recorded."""

    def __init__(self, config):
        self.block_size = config["block_size"]
        self.manager = BlockSpaceManager(
            self.block_size,
            config["num_gpu_blocks"],
            config["num_cpu_blocks"],
            watermark=config["watermark"],
            enable_caching=config["enable_caching"],
        )
        self.seqs, self.groups = {}, {}

    def run(self, line):
        """The recorded results `r`, `f`, `t`, `rc` as this implementation gives them."""
        arguments = {key: line[key] for key in line if key not in ("op", "r", "f", "t", "rc")}
        try:
            result = getattr(self, line["op"])(**arguments)
        except ValueError:
            result = {"err": "ValueError"}
        tables = {int(seq_id): self.manager.block_tables.get(int(seq_id)) for seq_id in line.get("t", {})}
        got = {"f": [self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks()]}
        if result is not None:
            got["r"] = result
        if "t" in line:
            got["t"] = {str(s): table and [b.block_number for b in table] for s, table in tables.items()}
        if "rc" in line:
            got["rc"] = {str(s): table and [b.ref_count for b in table] for s, table in tables.items()}
        return got

    def _move(self, group, before, after):
        for seq in group.get_seqs(STATUS[before]):
            seq.status = STATUS[after]

    def add(self, g, s, p):
        seqs = [Sequence(seq_id, p, self.block_size) for seq_id in s]
        self.seqs.update(zip(s, seqs, strict=True))
        self.groups[g] = SequenceGroup(str(g), seqs)

    def status(self, s, st):
        self.seqs[s].status = STATUS[st]

    def can_allocate(self, g):
        return self.manager.can_allocate(self.groups[g]).name

    def allocate(self, g):
        self.manager.allocate(self.groups[g])
        self._move(self.groups[g], "WAITING", "RUNNING")

    def tok(self, s, k):
        self.seqs[s].append_token_id(k)

    def can_append(self, g):
        return self.manager.can_append_slots(self.groups[g])

    def append(self, s):
        return [list(pair) for pair in self.manager.append_slots(self.seqs[s])]

    def fork(self, g, s, c):
        self.seqs[c] = self.seqs[s].fork(c)
        self.groups[g].add(self.seqs[c])
        self.manager.fork(self.seqs[s], self.seqs[c])

    def can_swap_out(self, g):
        return self.manager.can_swap_out(self.groups[g])

    def swap_out(self, g):
        pairs = self.manager.swap_out(self.groups[g])
        self._move(self.groups[g], "RUNNING", "SWAPPED")
        return [list(pair) for pair in pairs]

    def can_swap_in(self, g):
        return self.manager.can_swap_in(self.groups[g]).name

    def swap_in(self, g):
        pairs = self.manager.swap_in(self.groups[g])
        self._move(self.groups[g], "SWAPPED", "RUNNING")
        return [list(pair) for pair in pairs]

    def finish(self, s):
        self.seqs[s].status = SequenceStatus.FINISHED_STOPPED
        self.manager.free(self.seqs[s])

    def preempt(self, s):
        self.seqs[s].status = SequenceStatus.WAITING
        self.manager.free(self.seqs[s])
        self.seqs[s].reset_state_for_recompute()

    def touch(self, s, now):
        self.manager.access_all_blocks_in_seq(self.seqs[s], now)

    def common(self, g):
        return self.manager.get_common_computed_block_ids(self.groups[g].get_seqs(SequenceStatus.RUNNING))

    def computed(self, g):
        self.manager.mark_blocks_as_computed(self.groups[g])

    def reset(self):
        self.manager.reset()


def test_all_recordings_are_here():
    assert len(TRACES) == 88


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace_replays_exactly(path):
    header, *lines = map(json.loads, path.read_text().splitlines())
    replay = Replay(header["config"])
    for number, line in enumerate(lines, 2):
        recorded = {key: line[key] for key in ("r", "f", "t", "rc") if key in line}
        assert replay.run(line) == recorded, f"{path.name} line {number}: {json.dumps(line)[:300]}"
