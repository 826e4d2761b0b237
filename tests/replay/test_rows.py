"""Rows of a replay that are taken out in parts and put back make the same replay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monotau.replay import Layout, Newest, Prioritized, Steps, Uniform

KINDS = {"uniform": Uniform, "prioritized": Prioritized}


def replay(kind, lanes=2, capacity=14, n_step=2, masked_actions=0):
    layout = Layout(
        lanes=lanes,
        frame_shape=(2,),
        frame_dtype="float32",
        stack=2,
        n_step=n_step,
        gamma=0.9,
        masked_actions=masked_actions,
    )
    return KINDS[kind](capacity_steps=capacity, warmup_steps=1).build(layout, horizon_steps=100)


def play(memory, rng, steps, lanes=2, masked_actions=0):
    """An iteration: steps with random ends, and the cut."""
    first = np.ones(lanes, bool)

    def masks():
        return rng.random((lanes, masked_actions)) < 0.5 if masked_actions else None

    for _ in range(steps):
        ends = rng.random((2, lanes)) < 0.2
        frames, final = rng.random((2, lanes, 2)).astype(np.float32)
        written = memory.add(
            Steps(
                frames,
                first,
                rng.integers(3, size=lanes),
                rng.random(lanes),
                ends[0],
                ends[1],
                final,
                masks=masks(),
                final_masks=masks(),
            )
        )
        memory.update(written.steps, rng.random(lanes).astype(np.float32))
        first = ends[0] | ends[1]
    memory.cut(Newest(rng.random((lanes, 2)).astype(np.float32), masks()))


def joined(rows):
    return {name: np.concatenate(pieces) for name, pieces in rows.items()}


def same(one, other):
    batches = [memory.sample(64, np.random.default_rng(3)) for memory in (one, other)]
    fields = [[np.asarray(value) for value in vars(batch).values()] for batch in batches]
    return len(one) == len(other) and all(map(np.array_equal, *fields))


@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 3),
    st.lists(st.integers(1, 9), min_size=1, max_size=6),
    st.sampled_from([0, 5, 9]),
)
def test_a_replay_is_the_same_after_its_rows_were_taken_out_and_put_back(kind, lanes, iterations, masked_actions):
    rng = np.random.default_rng(len(iterations))
    old, new = (replay(kind, lanes, lanes * 7, masked_actions=masked_actions) for _ in range(2))
    segments, since = [], np.zeros(lanes, np.int64)
    for steps in iterations:
        play(old, rng, steps, lanes, masked_actions)
        rows = joined(old.rows(since))
        assert len(rows["flags"]) == (rows["end"] - rows["first"]).sum() <= lanes * 7
        segments.append(rows)
        since = old.span.end
    needed = [rows for rows in segments if (rows["end"] > old.span.first).any()]
    for rows in needed:
        new.put_back(rows)
    new.load_state(old.state())
    assert new.span.first.tolist() == old.span.first.tolist()
    assert new.span.end.tolist() == old.span.end.tolist()
    if old.ready:
        assert same(old, new)
    for memory in (old, new):  # and they go on alike
        play(memory, np.random.default_rng(9), 8, lanes, masked_actions)
    assert same(old, new)
    assert all(map(np.array_equal, old.state().values(), new.state().values()))


def test_only_new_rows_are_taken_out_and_none_is_copied():
    memory, rng = replay("uniform", capacity=40), np.random.default_rng(0)
    play(memory, rng, 5)
    before = memory.span.end
    assert all(not len(piece) for piece in memory.rows(before)["frames"])
    play(memory, rng, 3)
    rows = memory.rows(before)
    assert (rows["first"][0].tolist(), rows["end"][0].tolist()) == (before.tolist(), memory.span.end.tolist())
    counts = memory.span.end - before
    assert sum(map(len, rows["frames"])) == counts.sum()
    assert all(piece.base is not None for piece in rows["frames"])


def test_rows_that_wrap_around_the_end_of_a_lane_are_two_pieces_in_order():
    memory = replay("uniform", lanes=1, capacity=6)
    for step in range(8):
        frame = np.full((1, 2), step, np.float32)
        no = np.zeros(1, bool)
        memory.add(Steps(frame, np.array([step == 0]), np.zeros(1, np.int64), np.zeros(1), no, no, frame))
    assert joined(memory.rows(np.array([5])))["frames"][:, 0].tolist() == [5, 6, 7]
    assert joined(memory.rows(np.array([0])))["frames"][:, 0].tolist() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda rows: rows | {"first": rows["first"] + 1},
        lambda rows: rows | {"end": rows["end"] + 1},
        lambda rows: rows | {"first": rows["first"] + 3, "end": rows["end"] + 3},
        lambda rows: rows | {"first": -rows["first"] - 9, "end": -rows["first"] - 9},
        lambda rows: rows | {"first": rows["first"][:1]},
        lambda rows: rows | {"end": rows["end"].astype(np.int32)},
        lambda rows: rows | {"frames": rows["frames"][:, :1]},
        lambda rows: rows | {"frames": rows["frames"][:-1]},
        lambda rows: rows | {"rewards": rows["rewards"].astype(np.float32)},
        lambda rows: rows | {"masks": rows["masks"][:, :1]},
    ],
)
def test_rows_that_do_not_follow_or_are_of_another_shape_are_refused(spoil):
    old, new = replay("uniform", masked_actions=9), replay("uniform", masked_actions=9)
    play(old, np.random.default_rng(0), 3, masked_actions=9)
    new.put_back(joined(old.rows(np.zeros(2, np.int64))))
    since = old.span.end
    play(old, np.random.default_rng(1), 2, masked_actions=9)
    rows = joined(old.rows(since))
    with pytest.raises(ValueError, match=r"The rows .* do not continue the rows up to .* in 2 lanes of 7, or do not"):
        new.put_back(spoil(rows))
    new.put_back(rows)
