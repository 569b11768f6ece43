"""Content keys: equal exactly for equal tokens from position 0 on, whatever the tokens hash to."""

import os
import subprocess
import sys

import pytest

from refimpl.prefix_hash import NO_PREFIX, SPARE_KEYS, AnonymousKey, PrefixKeys

MERSENNE = 2**61 - 1  # CPython hashes ints modulo this


class Clash:
    """A token whose hash says nothing."""

    def __hash__(self):
        return 1


def test_equal_tokens_have_equal_keys_and_a_key_for_every_block():
    keys = PrefixKeys()
    long = keys.of_tokens(range(10), 4)
    assert keys.of_tokens(list(range(10)), 4) == long
    assert keys.of_tokens(range(8), 4) == long[:2]
    assert len(set(long)) == len(long) == 3
    assert keys.of_tokens([], 4) == []


def test_a_key_covers_everything_before_its_block():
    """B01."""
    keys = PrefixKeys()
    one = keys.of_tokens([1, 2, 3, 4, 9, 9, 9, 9], 4)
    other = keys.of_tokens([5, 6, 7, 8, 9, 9, 9, 9], 4)
    assert len({*one, *other}) == 4


def test_a_partial_block_and_the_full_one_are_different_content():
    keys = PrefixKeys()
    assert keys.of_tokens([1, 2, 3], 4) != keys.of_tokens([1, 2, 3, 4], 4)
    assert keys.of_tokens([1, 2, 3], 4) == keys.of_tokens([1, 2, 3], 4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([65] * 4, [321] * 4),
        ([1, 256, 0, 0], [256, 1, 0, 0]),
        ([12, 3], [1, 23]),
        ([1, 2, 3, 4], [4, 3, 2, 1]),
        ([0], [0, 0]),
        ([0] * 4, [MERSENNE] * 4),
    ],
)
def test_look_alikes_are_different(one, other):
    """B06: cut to 8 bits, joined as text, added up or hashed, these are the same."""
    keys = PrefixKeys()
    assert keys.of_tokens(one, 4) != keys.of_tokens(other, 4)


def test_tokens_that_hash_alike_are_told_apart():
    """B04. A hash alone is no evidence: what collides is compared."""
    assert hash((0, 5, 0)) == hash((MERSENNE, 5, 0))
    keys = PrefixKeys()
    assert keys.key(NO_PREFIX, (0, 5, 0)) != keys.key(NO_PREFIX, (MERSENNE, 5, 0))
    tokens = Clash(), Clash()
    assert hash(tokens) == hash(tokens[::-1])
    assert keys.key(NO_PREFIX, tokens) != keys.key(NO_PREFIX, tokens[::-1])
    assert keys.key(NO_PREFIX, tokens) == keys.key(NO_PREFIX, tokens)


def test_extra_keys_enter_every_block():
    """B07. Adapters are left out here; what an adapter's number would go into is not."""
    keys = PrefixKeys()
    plain, adapter_1, adapter_2 = (keys.of_tokens(range(8), 4, extra) for extra in ((), (1,), (2,)))
    assert len({*plain, *adapter_1, *adapter_2}) == 6
    assert keys.of_tokens(range(8), 4, (1,)) == adapter_1


def test_extra_keys_do_not_pass_for_tokens():
    """B07."""
    keys = PrefixKeys()
    assert keys.of_tokens([7, 8], 2, extra_keys=(5, 6))[0] not in keys.of_tokens([5, 6, 7, 8], 2)


def test_an_anonymous_key_equals_itself_only():
    """B17."""
    key = AnonymousKey()
    assert key == key
    assert key != AnonymousKey()
    assert len({key, AnonymousKey(), *range(5000)}) == 5002
    assert repr(key) == "AnonymousKey()"


def test_keys_are_the_same_in_every_process():
    """B04. Python seeds the hashes of strings anew in every process; no key depends on that."""
    program = (
        "from refimpl.prefix_hash import PrefixKeys; keys = PrefixKeys(); "
        "print([keys.of_tokens(tokens, 2, extra) for extra in ((), ('adapter',)) for tokens in ([1, 2, 3], [3, 2, 1])])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | seed, capture_output=True, text=True, check=True
        )
        for seed in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}, {"PYTHONHASHSEED": "random"})
    ]
    assert {run.stdout for run in runs} == {"[[1, 2], [3, 4], [6, 7], [8, 9]]\n"}


def test_what_is_kept_keeps_its_key_and_so_does_all_it_is_built_on():
    keys = PrefixKeys()
    kept, gone = keys.of_tokens(range(12), 4), keys.of_tokens(range(50, 62), 4)
    keys.forget_all_but([kept[2], AnonymousKey()])
    assert len(keys) == 3
    assert keys.of_tokens(range(12), 4) == kept
    assert not {*keys.of_tokens(range(50, 62), 4)} & {*kept, *gone}, "a number must not be handed out a second time"


def test_what_branches_off_a_kept_prefix_is_forgotten():
    keys = PrefixKeys()
    stem, branch, other = (keys.of_tokens([1, 2, *end], 2) for end in ([], [3, 4], [5, 6]))
    keys.forget_all_but([branch[1]])
    assert len(keys) == 2
    assert keys.of_tokens([1, 2, 3, 4], 2) == branch
    assert keys.of_tokens([1, 2, 5, 6], 2)[0] == stem[0]
    assert keys.of_tokens([1, 2, 5, 6], 2)[1] != other[1]


@pytest.mark.parametrize("num_live", [1, 3000])
def test_old_prefixes_are_cleared_often_enough_and_not_too_often(num_live):
    """Memory is bounded by what is in use, and looking through it is paid for by what has been added since."""
    keys = PrefixKeys()
    live = keys.of_tokens(range(num_live), 1)
    assert not PrefixKeys().has_many()
    clearings = most = 0
    for token_id in range(50_000):
        keys.key(NO_PREFIX, (token_id, token_id))
        most = max(most, len(keys))
        if keys.has_many():
            keys.forget_all_but([live[-1]])
            assert len(keys) == num_live
            clearings += 1
    assert most <= 5 * num_live + SPARE_KEYS
    assert 0 < clearings <= 50_000 / (SPARE_KEYS - 1)
    assert keys.of_tokens(range(num_live), 1) == live
