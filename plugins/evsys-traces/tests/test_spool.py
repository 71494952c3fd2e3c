"""The conversations of a log do not depend on the order of its records."""

from hypothesis import given
from hypothesis import strategies as st

from evsys_traces.items import Judgement
from evsys_traces.spool import Spool
from evsys_traces.trace import Feedback, read_call


def call(opening, turns, conversation):
    messages = []
    for turn in range(turns):
        messages += [
            {"role": "user", "content": opening if turn == 0 else f"{opening} {turn}"},
            {"role": "assistant", "content": f"answer {turn}"},
        ]
    return read_call(
        messages,
        None,
        None,
        conversation=conversation,
        time=float(turns),
        ids=(f"{opening}-{turns}-{conversation}",),
    )


calls = st.builds(
    call, st.sampled_from("ab"), st.integers(1, 4), st.one_of(st.none(), st.sampled_from(["c", "d"]))
)


def conversations(items):
    with Spool() as spool:
        for item in items:
            spool.add(item)
        rows = list(spool.rows())
    found = {repr((row["metadata"].get("conversation_id"), row["messages"])): row for row in rows}
    assert len(found) == len(rows)
    for row in rows:
        row["metadata"].get("feedback", []).sort(key=repr)
    return found, spool.left_out.total() + len(rows)


@given(st.lists(calls, max_size=12), st.randoms())
def test_any_order_gives_the_same_conversations(items, random):
    judged = [Judgement(ids=each.ids, feedback=Feedback(name=each.ids[0], score=1.0)) for each in items[:3]]
    shuffled = [*items, *judged]
    random.shuffle(shuffled)
    found, counted = conversations([*items, *judged])
    again, counted_again = conversations(shuffled)
    assert found == again
    assert counted == counted_again == len(items)


@given(st.lists(calls, min_size=1, max_size=12))
def test_no_conversation_kept_is_the_beginning_of_another(items):
    found, _ = conversations(items)
    by_conversation = {}
    for row in found.values():
        by_conversation.setdefault(row["metadata"].get("conversation_id"), []).append(row["messages"])
    for kept in by_conversation.values():
        for one in kept:
            assert not any(one == other[: len(one)] for other in kept if other is not one)
