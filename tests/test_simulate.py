"""What `simulate` runs, prints and refuses, and the figure of a sweep."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import random
import subprocess
import sys

import pytest

from refimpl.cli import main
from refimpl.config import CacheConfig, SchedulerConfig
from refimpl.engine_args import EngineArgs
from refimpl.simulate import MACHINES, WORKLOADS, add_simulate_arguments, num_cpu_blocks, num_gpu_blocks, run_simulate
from refimpl.simulation.cost_model import PRESETS
from refimpl.simulation.simulator import Simulator
from refimpl.simulation.traces import MOONCAKE_BLOCK_SIZE
from refimpl.simulation.workload import sharegpt_like

SHORT = ["--requests", 40, "--rate", 20]


def simulate(*arguments):
    parser = argparse.ArgumentParser()
    add_simulate_arguments(parser)
    return run_simulate(parser.parse_args([str(argument) for argument in arguments]))


def as_json(capsys, *arguments):
    assert simulate(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def mooncake(tmp_path):
    """A Mooncake file of conversations whose prompts grow, and the share of its blocks that a cache must hold."""
    chance, time, records, said = random.Random(5), 0, [], [[0]]
    for new_id in range(1, 120):
        time += chance.randrange(0, 2_000)
        prefix = chance.choice(said)
        if chance.random() < 0.9:
            prefix = [*prefix, new_id]
            said.append(prefix)
        last = chance.choice([1, 300, 511, MOONCAKE_BLOCK_SIZE])
        ids = [*prefix, 1_000 + new_id] if last < MOONCAKE_BLOCK_SIZE else prefix
        length = (len(ids) - 1) * MOONCAKE_BLOCK_SIZE + last
        records.append({"timestamp": time, "input_length": length, "output_length": chance.randrange(1, 40)})
        records[-1]["hash_ids"] = ids
    path = tmp_path / "small.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.fixture
def azure(tmp_path):
    path = tmp_path / "small.csv"
    rows = [f"2023-11-16 18:15:{second:02}.5,{100 + second},{1 + second}" for second in range(20)]
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    return path


def test_a_workload_is_what_the_library_makes_of_it(capsys):
    (run,) = as_json(capsys, *SHORT, "--num-gpu-blocks-override", 100, "--seed", 3)["runs"]
    cache_config = CacheConfig(num_gpu_blocks=100, num_cpu_blocks=200)
    cost_model = PRESETS["gpu-opt-13b-a100"]
    expected = Simulator(cache_config, SchedulerConfig(max_model_len=1600), cost_model).run(
        sharegpt_like(40, 20, seed=3)
    )
    assert expected.preemptions > 0
    assert (run["name"], run["num_gpu_blocks"], run["num_cpu_blocks"]) == ("sharegpt-like", 100, 200)
    assert (run["arguments"]["rate"], run["arguments"]["block_size"]) == (20, 16)
    for name, value in expected.as_dict().items():
        if "wall" not in name:
            assert run["result"][name] == value, name


def test_the_table_says_what_was_run_and_what_came_of_it_and_how_fast(capsys):
    assert simulate(*SHORT, "--swap-space", 1) == 0
    first, *table, speed = capsys.readouterr().out.splitlines()
    assert first == (
        "sharegpt-like: 965 GPU and 81 CPU blocks of 16 tokens, at most 256 sequences of 2,048 tokens, "
        "2,048 prompt tokens a step"
    )
    assert any(line.split() == ["requests", "finished", "40"] for line in table)
    assert speed.startswith("sharegpt-like: simulated in ")
    assert speed.endswith(" steps/s")


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_workload_runs_to_its_end(capsys, name):
    flags = ["--workload", name, "--requests", 5, "--rate", "inf", "--system-tokens", 100, "--think-time", 1]
    (run,) = as_json(capsys, *flags, "--input-len", 30, "--output-len", 20)["runs"]
    result = run["result"]
    assert result["finished"] >= 5
    assert result["finished"] * {"parallel-sampling": 4}.get(name, 1) <= result["generated_tokens"]
    assert (run["arguments"]["rate"], run["name"]) == ("inf", name)


def test_the_flags_of_a_workload_change_it(capsys):
    changes = {
        "parallel-sampling": ("--n", 2, "generated_tokens"),
        "shared-system-prompt": ("--system-tokens", 64, "prompt_tokens"),
        "chat": ("--turns", 1, "finished"),
        "poisson": ("--input-len", 900, "prompt_tokens"),
    }
    for name, (flag, value, figure) in changes.items():
        default, changed = (
            as_json(capsys, "--workload", name, "--requests", 6, "--rate", 9, *flags)["runs"][0]["result"][figure]
            for flags in ([], [flag, value])
        )
        assert changed != default, name


def test_both_kinds_of_trace_run_to_their_end(capsys, azure, mooncake):
    for path, requests in ((azure, 20), (mooncake, 119)):
        flags = ["--trace", path, "--max-model-len", 15_000]
        (run,) = as_json(capsys, *flags)["runs"]
        assert (run["name"], run["result"]["finished"]) == (path.name, requests)
    (run,) = as_json(capsys, *flags, "--limit", 7)["runs"]
    assert run["result"]["finished"] == 7


@pytest.mark.parametrize("block_size", [512, 256, 16])
def test_with_room_for_everything_the_cache_holds_what_the_hash_ids_say(capsys, mooncake, block_size):
    """Counted from the file alone: a block whose id was there before, unless it is its prompt's last.

    At least one token of a prompt is always computed, so its last block never counts as held.
    """
    seen, cached, total = set(), 0, 0
    for record in map(json.loads, mooncake.read_text().splitlines()):
        ids, length = record["hash_ids"], record["input_length"]
        num_seen = min(sum(hash_id in seen for hash_id in ids) * MOONCAKE_BLOCK_SIZE, length)
        seen.update(ids)
        total += -(-length // block_size)
        cached += min(num_seen // block_size, -(-length // block_size) - 1)
    flags = ["--trace", mooncake, "--block-size", block_size, "--num-gpu-blocks-override", 40_000]
    (run,) = as_json(capsys, *flags, "--max-model-len", 20_000, "--enable-prefix-caching")["runs"]
    result = run["result"]
    assert (result["prompt_blocks"], result["cached_prompt_blocks"]) == (total, cached)
    assert 0.3 < result["block_hit_rate"] == cached / total < 0.95
    assert result["cached_prompt_tokens"] == cached * block_size


def test_a_sweep_is_one_run_for_each_value(capsys):
    record = as_json(capsys, *SHORT, "--sweep", "block-size=8, 32")
    assert record["sweep"] == "block_size"
    assert [run["name"] for run in record["runs"]] == ["8", "32"]
    for run in record["runs"]:
        (alone,) = as_json(capsys, *SHORT, "--block-size", run["name"])["runs"]
        without_time = [{n: v for n, v in r["result"].items() if "wall" not in n} for r in (run, alone)]
        assert without_time[0] == without_time[1]
        assert run["num_gpu_blocks"] == alone["num_gpu_blocks"] == {8: 1930, 32: 482}[run["arguments"]["block_size"]]


def test_a_flag_without_a_value_is_swept_with_on_and_off(capsys):
    runs = as_json(capsys, "--workload", "shared-system-prompt", *SHORT, "--sweep", "enable_prefix_caching=off,on")[
        "runs"
    ]
    assert [run["arguments"]["enable_prefix_caching"] for run in runs] == [False, True]
    assert runs[0]["result"]["hit_rate"] == 0 < runs[1]["result"]["hit_rate"]


@pytest.mark.parametrize(
    "sweep", ["policy=fcfs,longest-slowest", "preemption-mode=swap,recompute", "workload=chat,poisson"]
)
def test_whatever_a_run_depends_on_can_be_swept(capsys, sweep):
    flags = ["--requests", 30, "--rate", "inf", "--num-gpu-blocks-override", 90]
    one, other = (run["result"] for run in as_json(capsys, *flags, "--sweep", sweep)["runs"])
    assert one["preemptions"] > 0
    assert one["seconds"] != other["seconds"]


def test_a_sweep_is_drawn(capsys, tmp_path):
    path = tmp_path / "sweep.png"
    assert simulate(*SHORT, "--sweep", "num-gpu-blocks-override=80,200", "--figure", path) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("requests finished") == 1


BAD = [
    (["--block-size", 0], "block_size is 0, it must be 1 or more"),
    (["--gpu-memory-utilization", 1.5], "gpu_memory_utilization is 1.5, it must be above 0 and at most 1"),
    (["--gpu-memory-utilization", 0.5], "a block of 16 tokens takes 13107200 bytes, the cache has 0: lower block_size"),
    (["--gpu-memory-utilization", "nan"], "gpu_memory_utilization is nan"),
    (["--num-gpu-blocks-override", 0], "num_gpu_blocks_override is 0, it must be between 1 and 10000000"),
    (["--num-gpu-blocks-override", 10**8], "num_gpu_blocks_override is 100000000, it must be between 1 and 10000000"),
    (["--swap-space", -1], "swap_space is -1.0 GiB, it must be 0 or more"),
    (["--swap-space", "inf"], "swap_space is inf GiB, a simulation holds at most 122070: lower it"),
    (["--swap-space", "nan"], "swap_space is nan GiB"),
    (["--max-num-batched-tokens", 9], "max_num_batched_tokens is 9, it must be max_model_len (2048) or more"),
    (["--requests", -1], "the number of requests is -1, it must be 0 or more"),
    (["--rate", 0], "rate is 0.0 requests a second, it must be above 0"),
    (["--sweep", "rate=1,0"], "rate is 0.0 requests a second, it must be above 0"),
    (["--workload", "poisson", "--input-len", 0], "the mean length is 0.0 tokens, it must be 1 or more"),
    (["--limit", 3], "limit is 3, and there is no trace to take a part of: give --requests"),
    (["--trace", "AZURE", "--limit", 0], "limit is 0, it must be 1 or more"),
    (["--trace", "nowhere.csv"], "No such file or directory: 'nowhere.csv'"),
    (["--trace", "."], "Is a directory"),
    (["--trace", "AZURE", "--sweep", "workload=chat"], "give one of the two"),
    (["--sweep", "block_size"], "sweep is 'block_size', it must be a flag and its values, such as block_size=8,16,32"),
    (["--sweep", "blocks=8"], "--sweep: unrecognized arguments: --blocks=8"),
    (["--sweep", "sweep=8"], "--sweep: unrecognized arguments: --sweep=8"),
    (["--sweep", "block_size=8,x"], "--sweep: argument --block-size: invalid int value: 'x'"),
    (["--sweep", "block_size="], "--sweep: argument --block-size: invalid int value: ''"),
    (["--sweep", "policy=lifo"], "--sweep: argument --policy: invalid choice: 'lifo'"),
    (
        ["--sweep", "enable_prefix_caching=maybe"],
        "--sweep: argument --enable-prefix-caching: ignored explicit argument",
    ),
    (["--sweep", "block_size=8,0"], "block_size is 0, it must be 1 or more"),
    (["--figure", "a.png"], "figure is a.png, and there is nothing to draw without --sweep"),
    (["--sweep", "seed=1", "--figure", "a.pdf"], "figure is a.pdf, it must be a .png file in a folder that exists"),
    (["--sweep", "seed=1", "--figure", "no/a.png"], "figure is no/a.png, it must be a .png file in a folder"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_input_is_one_sentence_and_exit_code_2_before_anything_runs(
    monkeypatch, capsys, tmp_path, azure, arguments, message
):
    monkeypatch.setattr(Simulator, "run", lambda *_, **__: pytest.fail("a run has started"))
    monkeypatch.chdir(tmp_path)
    assert simulate(*[azure if argument == "AZURE" else argument for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("simulate: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert os.listdir(tmp_path) == [azure.name]


def test_a_bad_line_of_a_trace_is_one_sentence_and_no_table(capsys, azure):
    azure.write_text(azure.read_text().replace(",110,", ",many,"))
    assert simulate("--trace", azure) == 2
    printed = capsys.readouterr()
    assert printed.err == f"simulate: {azure}, line 12: ContextTokens is 'many', it must be a whole number\n"
    assert printed.out == ""


def test_without_matplotlib_a_figure_is_refused_before_anything_runs(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("refimpl.viz")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(Simulator, "run", lambda *_, **__: pytest.fail("a run has started"))
    assert simulate("--sweep", "seed=1,2", "--figure", tmp_path / "a.png") == 2
    assert "pip install refimpl[lab]" in capsys.readouterr().err


def test_a_mean_of_nothing_is_null_in_json(capsys):
    (run,) = as_json(capsys, "--requests", 0)["runs"]
    assert run["result"]["finished"] == 0
    assert run["result"]["time_to_first_token_mean"] is None


def test_no_bar_is_drawn_where_none_is_wanted(monkeypatch, capsys, azure):
    """E07."""
    monkeypatch.setattr("refimpl.simulation.traces._BAR_DELAY", 0.0)
    assert simulate("--trace", azure) == 0
    assert azure.name in capsys.readouterr().err
    for flags in (SHORT, ["--trace", azure]):
        assert simulate(*flags, "--disable-tqdm") == 0
        assert capsys.readouterr().err == ""


def test_a_simulation_loads_nothing_heavy():
    code = (
        "import sys; from refimpl.cli import main; main(['simulate', '--requests', '3', '--disable-tqdm']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'matplotlib', 'IPython', 'tqdm')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_the_command_is_there(capsys):
    assert main(["simulate", "--requests", "3"]) == 0
    assert "requests finished" in capsys.readouterr().out


def test_every_cost_model_has_a_machine_that_holds_its_model():
    assert set(MACHINES) >= set(PRESETS)
    for name, machine in MACHINES.items():
        assert num_gpu_blocks(EngineArgs(), name) * 16 >= machine.max_model_len


def test_the_pool_of_the_paper_is_met():
    """PagedAttention paper, table 1: 15.7K slots for OPT-13B on an A100-40GB, and 12 GB for them."""
    blocks = num_gpu_blocks(EngineArgs(), "gpu-opt-13b-a100")
    assert blocks * 16 == pytest.approx(15_700, rel=0.02)


def test_pools_are_sized_as_those_of_a_real_model_are():
    memory = pytest.importorskip("refimpl.device.memory", reason="needs torch")
    weights, total = 26 * 10**9, 40 * memory.GIB
    for share in (0.7, 0.9, 1.0):
        for block_size, swap_space in ((16, None), (32, 4)):
            args = EngineArgs(block_size=block_size, gpu_memory_utilization=share, swap_space=swap_space)
            config = CacheConfig(block_size, share, swap_space)
            block_bytes = block_size * PRESETS["gpu-opt-13b-a100"].kv_bytes_per_token
            expected = memory.num_gpu_blocks(config, block_bytes, memory.DeviceMemory(total, total - weights, weights))
            blocks = num_gpu_blocks(args, "gpu-opt-13b-a100")
            assert blocks == expected
            expected = memory.num_cpu_blocks(config, block_bytes, blocks, 1 << 50)
            assert num_cpu_blocks(args, "gpu-opt-13b-a100", blocks) == expected


ROWS = {
    "8": {"throughput, tokens/s": 1234.5, "preemptions": 0, "wait, s": None},
    "16": {"throughput, tokens/s": 0.01234, "preemptions": 12, "wait, s": 123.45},
}


def test_the_figure_says_in_words_what_it_shows():
    from refimpl.viz.sweep import sweep

    assert sweep("block_size", ROWS, title="Blocks\nand more").describe().splitlines() == [
        "Blocks and more",
        "block_size: 8 and 16",
        "throughput, tokens/s: 1,234 at 8; 0.0123 at 16",
        "preemptions: 0 at 8; 12 at 16",
        "wait, s: – at 8; 123.5 at 16",
    ]


def test_a_bar_is_as_long_as_its_number_is_large():
    from PIL import Image

    from refimpl.viz.sheet import COLOURS
    from refimpl.viz.sweep import sweep

    def coloured(**numbers):
        picture = Image.open(io.BytesIO(sweep("a", {value: {"x": x} for value, x in numbers.items()}).png()))
        colour = bytes.fromhex(COLOURS[1].removeprefix("#"))
        pixels = picture.convert("RGBA").getcolors(1 << 24)  # a PNG's palette is close to what was drawn
        return sum(n for n, pixel in pixels if all(abs(pixel[i] - colour[i]) < 16 for i in range(3)))

    full = coloured(b=8)
    assert full > 1000
    assert coloured(b=8, c=0, d=None) == full
    assert coloured(b=8, c=4) == pytest.approx(1.5 * full, rel=0.03)


def test_the_figure_grows_with_what_it_shows_and_leaves_no_figure_open():
    from refimpl.viz.sweep import sweep

    small, large = sweep("a", {"1": {"x": 1}}), sweep("a", {str(i): dict.fromkeys("abcdefgh", i) for i in range(32)})
    assert large.size[0] > small.size[0]
    assert large.size[1] > small.size[1]
    assert small.png() == small.png()
    assert sweep("a", {"1": {"x": 2}}).png() != sweep("a", {"1": {"x": 1}}).png()
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({}, "values is 0; a picture can show 1 to 32"),
        ({str(i): {"x": 1} for i in range(33)}, "values is 33; a picture can show 1 to 32"),
        ({"1": {}}, "quantities is 0; a picture can show 1 to 8"),
        ({"1": {"x": 1}, "2": {"y": 1}}, "a=2 has the quantities y; the first row has x"),
        ({"1": {"x": -1}}, "x is -1 for a=1; a bar needs a finite number of 0 or more"),
        ({"1": {"x": math.nan}}, "x is nan for a=1"),
    ],
)
def test_a_figure_that_cannot_be_drawn_says_why(rows, message):
    from refimpl.viz.sweep import sweep

    with pytest.raises(ValueError, match=message):
        sweep("a", rows)
