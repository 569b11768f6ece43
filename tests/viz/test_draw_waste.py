"""The picture of waste: shares of four kinds a policy, and figures that add up."""

from types import SimpleNamespace

import pytest

from refimpl.viz.draw import waste

PAPER = {  # figure 2 of the PagedAttention paper, in per cent
    "Orca (max)": (20.4, 13.3, 57.3, 8.9),
    "vLLM": (96.3, 0.0, 3.7, 0.0),
}
KINDS = ("used", "reserved", "internal", "external")


def shares(*parts: float) -> dict[str, float]:
    return {kind: part / 100 for kind, part in zip(KINDS, parts, strict=True)}


def test_each_policy_is_said_with_what_it_wastes():
    picture = waste({name: shares(*parts) for name, parts in PAPER.items()}, title="Figure 2")
    assert picture.describe().splitlines() == [
        "Figure 2",
        "Shares of the memory, 2 ways to hand it out",
        "Orca (max): used 20.4 %, reserved 13.3 %, internal 57.3 %, external 8.9 %, free 0.1 %; wasted 79.5 %",
        "vLLM: used 96.3 %, reserved 0.0 %, internal 3.7 %, external 0.0 %; wasted 3.7 %",
    ]


def test_results_of_a_simulation_are_read_by_memory_or_pool():
    memory, pool = SimpleNamespace(**shares(90, 0, 10, 0)), SimpleNamespace(**shares(45, 0, 5, 0))
    result = SimpleNamespace(memory=memory, pool=pool)
    assert (
        "p: used 90.0 %, reserved 0.0 %, internal 10.0 %, external 0.0 %; wasted 10.0 %"
        in waste({"p": result}).describe()
    )
    assert "free 50.0 %; wasted 5.0 %" in waste({"p": result}, of="pool").describe()
    with pytest.raises(ValueError, match="of is 'gpu'; it must be 'memory' or 'pool'"):
        waste({"p": result}, of="gpu")


def test_shares_change_the_picture():
    assert waste({"p": shares(50, 50, 0, 0)}).png() != waste({"p": shares(50, 0, 50, 0)}).png()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((-1, 0, 0, 0), "used of 'p' is -0.01; a share must be 0 to 1"),
        ((0, 0, 120, 0), "internal of 'p' is 1.2; a share must be 0 to 1"),
        ((float("nan"), 0, 0, 0), "used of 'p' is nan"),
        ((60, 0, 60, 0), "the shares of 'p' make 1.2 together; they must make 1 at most"),
    ],
)
def test_shares_that_cannot_be_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        waste({"p": shares(*parts)})


def test_no_policy_and_too_many_are_refused_and_24_are_drawn():
    for count in (0, 25):
        with pytest.raises(ValueError, match=f"the number of policies is {count}; a picture can show 1 to 24"):
            waste({f"p{i}": shares(1, 0, 0, 0) for i in range(count)})
    assert waste({f"a policy with a very long name, number {i}": shares(1, 0, 0, 0) for i in range(24)}).png(quick=True)
