"""Which tasks ask the same, and which belong together."""

from evsys.types import HarborTask, Message
from evsys_runtime.data.equal_tasks import clusters_of, distinct_tasks, first_equals


def tasks_of(*instructions, **fields):
    return [HarborTask(task_id=f"t{n}", instruction=text, **fields) for n, text in enumerate(instructions)]


def test_equal_tasks_form_a_cluster_and_others_none():
    tasks = tasks_of(
        "What is 12 + 35?", "What is 12 - 35?", "  what is 12 + 35", "Whаt is 12\u200b + 35?", "else"
    )
    assert clusters_of(tasks) == dict.fromkeys(("t0", "t2", "t3"), "equal to t0")
    assert distinct_tasks(tasks) == 3
    assert clusters_of(tasks_of("a", "b")) == {}


def test_messages_roles_tools_and_folders_make_tasks_different():
    said = [(Message(role=role, content="hi"),) for role in ("user", "system", "user")]
    assert first_equals(tasks_of(*said)) == {"t0": "t0", "t1": "t1", "t2": "t0"}
    tools = HarborTask(task_id="u", instruction="a", tools=({"name": "find"},))
    assert distinct_tasks([*tasks_of("a"), tools]) == 2
    assert distinct_tasks(tasks_of("Do it.", "Do it.", path="folder")) == 2


def test_a_label_and_equal_tasks_join_clusters_that_share_a_task():
    labels = ("p", "p", "q", None)
    tasks = [
        HarborTask(task_id=f"t{n}", instruction=text, metadata={} if label is None else {"page": label})
        for n, (text, label) in enumerate(zip(("a", "b", "c", "b"), labels, strict=True))
    ]
    assert clusters_of(tasks, "page") == {"t0": "p", "t1": "p", "t2": "q", "t3": "p"}
    assert clusters_of(tasks) == {"t1": "equal to t1", "t3": "equal to t1"}
