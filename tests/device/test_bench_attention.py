"""`bench attention`: contenders compute the same, take turns, and the record says what was measured."""

from __future__ import annotations

import json
import statistics
import sys
from types import SimpleNamespace

import pytest
import torch

from refimpl.bench import attention, attention_cuda
from refimpl.bench.attention import SMOLLM2, Heads, dense, make_batch, median_ratio, take_turns
from refimpl.cli import main

TINY = Heads("tiny", 3, 4, 2, 8)


def test_contenders_compute_the_same():
    batch = make_batch([37] * 3, TINY, torch.float32, "cpu")
    keys, values = batch.in_a_row()
    assert keys.is_contiguous()
    assert keys.shape == (3, 2, 37, 8)
    expected = torch.stack([dense(batch, seq) for seq in range(3)]).float()
    for contender in (attention.sdpa_by_head, attention.sdpa_by_group):
        torch.testing.assert_close(contender(batch.query, keys, values), expected, atol=1e-5, rtol=1e-5)


def test_blocks_of_a_batch_are_scattered_and_nobody_shares_them():
    batch = make_batch([40, 5, 33], TINY, torch.float32, "cpu")
    used = [batch.block_tables[0, :3], batch.block_tables[1, :1], batch.block_tables[2, :3]]
    assert sorted(torch.cat(used).tolist()) == list(range(7))
    assert torch.cat(used).tolist() != list(range(7))


def test_lengths_that_differ_do_not_lie_in_a_row():
    with pytest.raises(ValueError, match=r"lengths differ: \[4, 5\]"):
        make_batch([4, 5], TINY, torch.float32, "cpu").in_a_row()


def test_contenders_take_turns_and_a_short_call_is_repeated():
    order = []

    def clock(call, times):
        call()
        order.append(times)
        return {"a": 0.01, "b": 0.2}[names[-1]] * times

    names = []
    calls = {name: (lambda name=name: names.append(name)) for name in "ab"}
    seconds = take_turns(calls, 3, clock)
    assert names == ["a", "a", "b", "b", "a", "b", "b", "a", "a", "b"]
    assert order == [1, 1, 1, 1, 2, 1, 1, 2, 2, 1]
    assert seconds == {"a": [0.01] * 3, "b": [0.2] * 3}


def test_a_ratio_is_formed_within_a_round():
    """The medians of both sides are 2 and 2; the machine was slow in different rounds for each row here."""
    assert median_ratio([1.0, 2.0, 30.0], [2.0, 4.0, 1.0]) == 0.5


def test_the_row_beside_sdpa_says_everything():
    row = attention.measure_beside_sdpa(TINY, 2, 20, rounds=3)
    assert row["heads"] == {"name": "tiny", "num_layers": 3, "num_heads": 4, "num_kv_heads": 2, "head_dim": 8}
    assert (row["batch"], row["context"], len(row["ratios"])) == (2, 20, 3)
    assert min(row["paged_ms"], row["sdpa_by_head_ms"], row["sdpa_by_group_ms"]) > 0
    assert row["baseline"] == min(("sdpa_by_head", "sdpa_by_group"), key=lambda name: row[f"{name}_ms"])
    assert row["ratio"] == statistics.median(row["ratios"])
    assert row["max_error"] < 1e-5


def test_ratios_are_by_the_faster_baseline_of_the_same_round(monkeypatch):
    """Group is the faster by its median though head was in the first round."""
    seconds = {
        "first_layer": [1.0, 8.0, 9.0],
        "next_layer": [1.0, 2.0, 9.0],  # of 3 layers two, so that a layer of a step takes 1, 4 and 9
        "sdpa_by_head": [1.0, 9.0, 9.0],
        "sdpa_by_group": [2.0, 2.0, 3.0],
    }
    monkeypatch.setattr(attention, "take_turns", lambda calls, rounds, clock: seconds)
    row = attention.measure_beside_sdpa(TINY, 1, 4, rounds=3)
    assert (row["baseline"], row["ratios"], row["ratio"]) == ("sdpa_by_group", [0.5, 2.0, 3.0], 2.0)


def test_the_row_of_growth_counts_tokens():
    row = attention.measure_growth(TINY, 4, short=8, long=40, rounds=2)
    assert row["tokens_ratio"] == (3 * 8 + 40) / (4 * 40)
    assert row["time_ratio"] > 0


def test_a_row_that_does_not_fit_into_memory_says_so(monkeypatch):
    needed = attention._SHARE_OF_MEMORY * SMOLLM2.kv_bytes(2 * 16, torch.float32)
    monkeypatch.setattr(attention, "_free_memory", lambda: needed)  # enough for SmolLM2, not for larger heads
    record = attention.measure_cpu(2, [16], rounds=1)
    small, large = record["beside_sdpa"]
    assert "ratio" in small
    assert "are free" in large["skipped"]
    assert "skipped: needs about" in attention.table(record)


def test_the_command_prints_a_table_or_json(capsys):
    command = ["bench", "attention", "--batch", "2", "--contexts", "8", "24", "--rounds", "1"]
    assert main(command) == 0
    assert "SmolLM2-135M" in capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [row["context"] for row in record["beside_sdpa"]] == [8, 24, 8, 24]
    assert record["device"] == "cpu"
    assert record["growth"]["contexts"] == "1 of 8 and 1 of 24 beside 2 of 24"


def test_contenders_that_disagree_are_an_error(monkeypatch, capsys):
    right = attention.sdpa_by_group
    monkeypatch.setattr(attention, "sdpa_by_group", lambda *tensors: right(*tensors) + 0.01)
    assert main(["bench", "attention", "--batch", "1", "--contexts", "8", "--rounds", "1"]) == 1
    assert "1.0e-02" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--rounds", "0"], ["--contexts", "16", "-1"]])
def test_sizes_below_one_are_refused(arguments, capsys):
    assert main(["bench", "attention", *arguments]) == 2
    assert "must be 1 or more" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA: this is about machines without")
def test_without_cuda_nothing_is_measured(capsys):
    assert main(["bench", "attention", "--device", "cuda"]) == 2
    assert "finds no CUDA device; nothing was measured" in capsys.readouterr().out


@pytest.fixture
def gpu_stand_in(monkeypatch):
    """The CUDA half of the benchmark with the CPU in the place of the GPU: its sums and tables, not its speed."""
    pytest.importorskip("triton", reason="triton is not installed: it is there for Linux on x86-64 only")
    batches = [make_batch([33, 33], TINY, torch.float32, "cpu", seed=seed) for seed in range(2)]
    monkeypatch.setattr(attention_cuda, "_batches", lambda contexts: batches)
    monkeypatch.setattr(attention_cuda, "_copy", lambda: torch.zeros(8).clone)
    monkeypatch.setattr(attention_cuda, "in_a_graph", attention_cuda._each)
    monkeypatch.setattr(attention_cuda, "device_clock", attention.wall_clock)
    monkeypatch.setattr(attention, "_ROUND_SECONDS", 0.0)
    return batches


def test_bandwidth_is_that_of_keys_and_values_read_beside_bytes_read_and_written(gpu_stand_in, monkeypatch):
    """Two batches take a second, so half a second each; the copy reads and writes 4 GiB in one."""
    seconds = {"copy": [1.0, 2.0, 1.0], "kernel": [1.0, 1.0, 4.0], "kernel_eager": [2.0, 2.0, 2.0]}
    seconds |= {"sdpa_by_head": [3.0] * 3, "sdpa_by_group": [3.0] * 3}
    monkeypatch.setattr(
        attention_cuda, "take_turns", lambda calls, rounds, clock: {name: seconds[name] for name in calls}
    )
    row = attention_cuda.measure([33, 33], rounds=3)
    read = attention.LLAMA_8B.kv_bytes(66, torch.float32)  # a batch's
    assert row["bytes"] == read
    assert (row["kernel_ms"], row["kernel_eager_ms"], row["copy_ms"]) == (500.0, 1000.0, 1000.0)
    assert row["kernel_gb_s"] == pytest.approx(2 * read / 1e9)
    assert row["copy_gb_s"] == pytest.approx(4 * 2**30 / 1e9)
    share = 2 * read / (4 * 2**30)
    assert row["shares"] == pytest.approx([share, 2 * share, share / 4])
    assert row["share_of_copy"] == pytest.approx(share)
    assert row["relative_error"] < 1e-5


def test_every_part_for_the_gpu_measures(gpu_stand_in, monkeypatch):
    row = attention_cuda.measure([33, 33], rounds=1)
    assert "64 x 4096" in attention_cuda.table({"64 x 4096": row})
    monkeypatch.setattr(attention_cuda, "CONFIGS_TO_TRY", attention_cuda.CONFIGS_TO_TRY[:2])
    configurations = attention_cuda.measure_configs(rounds=1)
    assert len(configurations["share_of_copy"]) == 2 + 6
    assert configurations["skipped"] == {}
    monkeypatch.setattr(torch, "compile", lambda function: function)
    library = SimpleNamespace(flex_attention=torch.nn.functional.scaled_dot_product_attention)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.flex_attention", library)
    flex = attention_cuda.measure_flex(rounds=1)
    assert flex["relative_error"] < 1e-5
    assert flex["flex_attention_ms"] > 0


def test_a_wrong_result_of_another_library_is_seen(gpu_stand_in):
    others = [lambda batch=batch: batch.query for batch in gpu_stand_in]
    assert attention_cuda._beside_kernel("other", others, gpu_stand_in, 1)["relative_error"] > 0.5


def test_a_library_that_is_not_there_is_skipped(monkeypatch):
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    assert "flashinfer" in attention_cuda.measure_flashinfer(rounds=1)["skipped"]


def test_the_workload_with_a_target_is_the_one_of_the_issue():
    assert attention_cuda.WORKLOADS[attention_cuda.HEADLINE] == [4096] * 64
    heads = attention.LLAMA_8B
    assert (heads.num_heads, heads.num_kv_heads, heads.head_dim, attention.BLOCK_SIZE) == (32, 8, 128, 16)
