"""The tasks that select and those that prove: two halves, the same in every run, with clusters undivided."""

from types import SimpleNamespace

import pytest

from evsys_runtime.evaluation.proof import selecting_tasks


def entry(count, cluster=None):
    tasks = [SimpleNamespace(task_id=f"t{i}") for i in range(count)]
    clusters = {} if cluster is None else {task.task_id: str(i // cluster) for i, task in enumerate(tasks)}
    return SimpleNamespace(tasks=tasks, clusters=clusters)


@pytest.mark.parametrize(("count", "chosen"), [(20, 10), (21, 10), (200, 100)])
def test_half_of_the_tasks_select_and_the_larger_half_proves(count, chosen):
    assert len(selecting_tasks(entry(count))) == chosen


def test_the_halves_do_not_depend_on_the_order_of_the_tasks():
    forwards, backwards = entry(50), entry(50)
    backwards.tasks.reverse()
    assert selecting_tasks(forwards) == selecting_tasks(backwards)


def test_a_cluster_is_in_one_half():
    found = entry(60, cluster=3)
    chosen = selecting_tasks(found)
    sides = {cluster: set() for cluster in found.clusters.values()}
    for task, cluster in found.clusters.items():
        sides[cluster].add(task in chosen)
    assert all(len(side) == 1 for side in sides.values())
    assert 20 <= len(chosen) <= 30
