"""Sequences and groups."""

import pytest

from refimpl import SamplingParams, Sequence, SequenceGroup, SequenceStatus


def test_lengths_count_prompt_and_output():
    seq = Sequence(0, [1, 2, 3], block_size=2)
    seq.append_token_id(9)
    assert (seq.get_len(), seq.get_prompt_len(), seq.get_output_len(), seq.n_blocks) == (4, 3, 1, 2)
    assert (seq.get_token_ids(), seq.prompt_token_ids, seq.output_token_ids) == ([1, 2, 3, 9], [1, 2, 3], [9])


def test_token_lists_handed_out_are_copies():
    seq = Sequence(0, [1, 2], block_size=2)
    seq.get_token_ids().append(7)
    seq.prompt_token_ids.append(7)
    assert seq.get_token_ids() == [1, 2]


def test_a_fork_grows_apart_from_its_parent():
    parent = Sequence(0, [1, 2], block_size=2)
    parent.status = SequenceStatus.RUNNING
    parent.append_token_id(3)
    child = parent.fork(7)
    child.append_token_id(4)
    assert (child.seq_id, child.status, child.get_prompt_len()) == (7, SequenceStatus.RUNNING, 2)
    assert (parent.get_token_ids(), child.get_token_ids()) == ([1, 2, 3], [1, 2, 3, 4])


def test_tokens_from_a_position_on():
    assert Sequence(0, [1, 2, 3], block_size=2).get_token_ids(1) == [2, 3]


@pytest.mark.parametrize("bad", [-1, 1.0, "1", None, True])
def test_token_ids_are_non_negative_ints(bad):
    with pytest.raises(ValueError, match="position 1"):
        Sequence(0, [5, bad], block_size=2)
    seq = Sequence(0, [5], block_size=2)
    with pytest.raises(ValueError, match="must be an int of 0 or more"):
        seq.append_token_id(bad)
    assert seq.get_len() == 1


def test_block_size_below_one_is_refused():
    with pytest.raises(ValueError, match="block_size is 0"):
        Sequence(0, [1], block_size=0)


def test_recompute_forgets_what_was_computed_and_keeps_the_tokens():
    seq = Sequence(0, [1, 2], block_size=2)
    seq.num_computed_tokens = 2
    assert seq.fork(1).num_computed_tokens == 2
    seq.reset_state_for_recompute()
    assert (seq.num_computed_tokens, seq.get_token_ids()) == (0, [1, 2])


@pytest.mark.parametrize("status", list(SequenceStatus))
def test_only_finished_statuses_are_finished(status):
    seq = Sequence(0, [1], block_size=2)
    seq.status = status
    assert seq.is_finished() is status.name.startswith("FINISHED")


def group_of(*statuses, sampling_params=None):
    group = SequenceGroup("r", [Sequence(i, [1], 2) for i in range(len(statuses))], sampling_params)
    for seq, status in zip(group.seqs, statuses, strict=True):
        seq.status = status
    return group


def test_group_counts_by_status():
    group = group_of(SequenceStatus.RUNNING, SequenceStatus.FINISHED_STOPPED, SequenceStatus.RUNNING)
    assert [seq.seq_id for seq in group.get_seqs(SequenceStatus.RUNNING)] == [0, 2]
    assert (group.num_seqs(), group.num_seqs(SequenceStatus.RUNNING), group.num_unfinished_seqs()) == (
        3,
        2,
        2,
    )
    assert [seq.seq_id for seq in group.get_unfinished_seqs()] == [0, 2]
    assert not group.is_finished()
    assert group_of(SequenceStatus.FINISHED_ABORTED).is_finished()


def test_a_prompt_that_will_fork_counts_as_all_its_sequences():
    assert (
        group_of(SequenceStatus.WAITING, sampling_params=SamplingParams(n=2, best_of=4)).get_max_num_running_seqs() == 4
    )
    forked = group_of(*[SequenceStatus.RUNNING] * 2, sampling_params=SamplingParams(n=2))
    forked.seqs[0].status = SequenceStatus.FINISHED_STOPPED
    assert forked.get_max_num_running_seqs() == 1
    assert group_of(SequenceStatus.RUNNING).get_max_num_running_seqs() == 1


def test_ids_in_a_group_are_distinct():
    group = group_of(SequenceStatus.WAITING)
    with pytest.raises(ValueError, match="sequence 0 is in request r already"):
        group.add(Sequence(0, [1], 2))
    with pytest.raises(ValueError, match="sequence 5 is not in request r"):
        group.remove(5)
    group.add(Sequence(5, [1], 2))
    group.remove(5)
    assert [seq.seq_id for seq in group.seqs] == [0]


def test_a_group_without_sequences_is_refused():
    with pytest.raises(ValueError, match="0 sequences"):
        SequenceGroup("r", [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("best_of", 0),
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("max_tokens", 0),
        ("max_tokens", 1.5),
        ("temperature", float("inf")),
    ],
)
def test_impossible_sampling_is_refused(field, value):
    with pytest.raises(ValueError, match=f"{field} is {value}"):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("stop", ["", ["end", ""], [3], [None]])
def test_a_stop_string_is_a_text_that_is_not_empty(stop):
    with pytest.raises(ValueError, match="stop is .*, it must be one or several texts of 1 character or more"):
        SamplingParams(stop=stop)


@pytest.mark.parametrize("tokens", [7, ["a"], [1.0], [True], "12"])
def test_a_stop_token_is_a_number(tokens):
    with pytest.raises(ValueError, match="stop_token_ids is .*, it must be a list of whole numbers"):
        SamplingParams(stop_token_ids=tokens)


def test_stops_are_kept_as_they_were_given():
    """One text or several; what the caller does to the list afterwards changes nothing."""
    texts, tokens = ["a", "bc"], [4, 5]
    params = SamplingParams(stop=texts, stop_token_ids=tokens)
    texts.append("d")
    tokens.append(6)
    assert (params.stop, params.stop_token_ids) == (("a", "bc"), (4, 5))
    assert SamplingParams(stop="abc").stop == ("abc",)
    assert (SamplingParams().stop, SamplingParams().stop_token_ids) == ((), ())


def test_edges_of_sampling_are_allowed():
    params = SamplingParams(n=2, best_of=2, temperature=0, top_p=1, max_tokens=1)
    assert params.num_candidates == 2
    assert SamplingParams(n=3).num_candidates == 3


def test_fewer_candidates_than_outputs_are_refused():
    with pytest.raises(ValueError, match=r"best_of is 2, it must be n \(3\) or more"):
        SamplingParams(n=3, best_of=2)


def test_a_sequence_and_a_group_say_what_they_are():
    group = group_of(SequenceStatus.RUNNING)
    assert repr(group) == "SequenceGroup(request_id=r, num_seqs=1)"
    assert repr(group.seqs[0]) == "Sequence(seq_id=0, status=RUNNING, len=1)"
