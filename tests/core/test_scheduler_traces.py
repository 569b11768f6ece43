"""Recordings of vLLM 0.5.4's scheduler (faults mended) replay exactly: queues, budgets, block tables, every step.

A recording tells the arrivals and aborts of each step. The engine below makes up one token for every sequence that
ran, forks a group that asked for several sequences, and ends what has reached its length, as when it was recorded.
"""

import json
from pathlib import Path

import pytest

from refimpl import BlockSpaceManager, CacheConfig, SamplingParams, SchedulerConfig, Sequence, SequenceGroup
from refimpl import SequenceStatus as Status
from refimpl.scheduler import Scheduler

TRACES = sorted((Path(__file__).parents[1] / "data/traces/scheduler").glob("*.jsonl"))
OPTIONAL = ("ab", "refused", "finq")  # keys that are absent where there is nothing to say


class Engine:
    """A scheduler, the requests it was given, and a worker that makes tokens up."""

    def __init__(self, config):
        self.block_size = config["block_size"]
        sizes = config["num_gpu_blocks"], config["num_cpu_blocks"]
        self.manager = BlockSpaceManager(self.block_size, *sizes, config["watermark"], config["enable_caching"])
        limits = SchedulerConfig(
            config["max_num_batched_tokens"],
            config["max_num_seqs"],
            config["max_model_len"],
            preemption_mode=config["preemption_mode"],
        )
        self.scheduler = Scheduler(limits, CacheConfig(), self.manager)
        self.next_seq_id = 0
        self.groups = {}  # gid -> group
        self.wanted = {}  # gid -> output length of each sequence that is still to be, parent first
        self.length_of = {}  # seq_id -> output length at which it ends

    def step(self, line):
        """The line as this implementation would have recorded it."""
        refused = [gid for gid, *request in line["add"] if not self.add(gid, *request)]
        for gid in line.get("ab", ()):
            self.scheduler.abort_seq_group(str(gid))
        metadata, outputs = self.scheduler.schedule(now=line["step"])
        assert [m.is_prompt for m in metadata] == [i < outputs.num_prefill_groups for i in range(len(metadata))]
        record = {"step": line["step"], "add": line["add"], **self.scheduled(metadata, outputs)}
        record |= {"fork": [], "fin": [], "ab": line.get("ab", []), "refused": refused, "finq": []}
        for scheduled in outputs.scheduled_seq_groups:
            self.run(int(scheduled.seq_group.request_id), record)
        self.scheduler.free_finished_seq_groups()
        record["f"] = [self.manager.get_num_free_gpu_blocks(), self.manager.get_num_free_cpu_blocks()]
        return {key: value for key, value in record.items() if value or key not in OPTIONAL}

    def add(self, gid, prompt, output, best_of):
        seq = Sequence(self.new_seq_id(), prompt, self.block_size)
        group = SequenceGroup(str(gid), [seq], SamplingParams(n=best_of, best_of=best_of))
        try:
            self.scheduler.add_seq_group(group)
        except ValueError:
            return False
        first, *others = output if isinstance(output, list) else [output] * best_of
        self.groups[gid], self.wanted[gid], self.length_of[seq.seq_id] = group, others, first
        return True

    def new_seq_id(self):
        self.next_seq_id += 1
        return self.next_seq_id - 1

    def scheduled(self, metadata, outputs):
        gids = {"w": self.scheduler.waiting, "r": self.scheduler.running, "s": self.scheduler.swapped}
        pairs = {"in": "blocks_to_swap_in", "out": "blocks_to_swap_out", "copy": "blocks_to_copy"}
        return {
            "sched": [[int(s.seq_group.request_id), s.token_chunk_size] for s in outputs.scheduled_seq_groups],
            "np": outputs.num_prefill_groups,
            "nt": outputs.num_batched_tokens,
            "pre": outputs.preempted,
            "ign": [int(group.request_id) for group in outputs.ignored_seq_groups],
            **{key: [int(group.request_id) for group in queue] for key, queue in gids.items()},
            **{key: [list(pair) for pair in getattr(outputs, name)] for key, name in pairs.items()},
            "t": {str(seq_id): table for m in metadata for seq_id, table in m.block_tables.items()},
            "comp": {m.request_id: m.computed_block_nums for m in metadata if m.computed_block_nums},
        }

    def run(self, gid, record):
        group = self.groups[gid]
        live = group.get_unfinished_seqs()
        forks = []
        for length in self.wanted[gid]:
            child = live[0].fork(self.new_seq_id())
            group.add(child)
            self.scheduler.fork_seq(live[0], child)
            self.length_of[child.seq_id] = length
            forks.append(child)
        self.wanted[gid] = []
        record["fork"] += [[gid, live[0].seq_id, child.seq_id] for child in forks]
        for seq in forks + live:
            seq.append_token_id(100000 + 1000 * seq.seq_id + seq.get_output_len())
        done = [s for s in group.get_unfinished_seqs() if s.get_output_len() >= self.length_of[s.seq_id]]
        for seq in done:
            seq.status = Status.FINISHED_STOPPED
            self.scheduler.free_seq(seq)
        if group.is_finished():
            record["fin"].append(gid)
        else:
            record["finq"] += [seq.seq_id for seq in done]


def test_all_recordings_are_here():
    assert len(TRACES) == 34


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace_replays_exactly(path):
    header, *lines = map(json.loads, path.read_text().splitlines())
    engine = Engine(header["config"])
    for number, line in enumerate(lines, 2):
        got = json.loads(json.dumps(engine.step(line)))
        different = {key for key in got | line if got.get(key) != line.get(key)}
        assert not different, f"{path.name} line {number}: {sorted(different)} in {json.dumps(line)[:300]}"
