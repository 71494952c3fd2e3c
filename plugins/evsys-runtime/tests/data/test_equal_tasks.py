"""Which tasks ask the same, and which belong together."""

from evsys.types import HarborTask, Message
from evsys_runtime.data.equal_tasks import clusters_of, first_alike


def tasks_of(*instructions, **fields):
    return [HarborTask(task_id=f"t{n}", instruction=text, **fields) for n, text in enumerate(instructions)]


def distinct_tasks(tasks):
    return len(set(first_alike(tasks).values()))


def test_equal_tasks_form_a_cluster_and_others_none():
    tasks = tasks_of(
        "What is 12 + 35?", "What is 12 - 35?", "  what is 12 + 35", "Whаt is 12\u200b + 35?", "else"
    )
    assert clusters_of(tasks) == dict.fromkeys(("t0", "t2", "t3"), "equal to t0")
    assert distinct_tasks(tasks) == 3
    assert clusters_of(tasks_of("a", "b")) == {}


def test_messages_roles_tools_and_folders_make_tasks_different():
    said = [(Message(role=role, content="hi"),) for role in ("user", "system", "user")]
    assert distinct_tasks(tasks_of(*said[:2])) == 2
    assert first_alike(tasks_of(*said)) == {"t0": "t0", "t1": "t1", "t2": "t0"}
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


RIVER = "What is the name of the longest river that flows through the capital of Portugal?"


def test_tasks_with_added_or_misspelt_words_form_a_cluster_and_replaced_ones_none():
    edited = [
        RIVER,
        f"Please: {RIVER}",
        RIVER.replace("longest", "longset"),
        RIVER.replace("Portugal", "Spain"),
    ]
    assert first_alike(tasks_of(*edited)) == {"t0": "t0", "t1": "t0", "t2": "t0", "t3": "t3"}
    assert set(clusters_of(tasks_of(*edited))) == {"t0", "t1", "t2"}


def test_five_prompts_with_edits_of_each_are_five_tasks():
    prompts = [
        RIVER.replace("Portugal", land) for land in ("Portugal", "Hungary", "Norway", "Chile", "Ghana")
    ]
    places = range(1, 12)
    edits = [" ".join([*p.split()[:at], "now", *p.split()[at:]]) for p in prompts for at in places]
    assert distinct_tasks(tasks_of(*prompts, *edits)) == 5


def test_a_system_message_counts_only_where_tasks_differ_in_it():
    def task(system):
        return (Message(role="system", content=system), Message(role="user", content="Summarise the page."))

    assert distinct_tasks(tasks_of(task("The sea is blue."), task("Trees are green."))) == 2
    assert distinct_tasks(tasks_of(task("Be short."), task("Be short."))) == 1
