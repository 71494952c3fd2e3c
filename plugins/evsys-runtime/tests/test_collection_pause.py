import gc

import pytest

from evsys_runtime.collection_pause import collection_paused


@pytest.fixture(autouse=True)
def collector():
    """The collector as the other tests expect it."""
    enabled = gc.isenabled()
    yield
    gc.unfreeze()
    (gc.enable if enabled else gc.disable)()


def is_old(thing: object) -> bool:
    return any(one is thing for one in gc.get_objects(generation=2))


def test_the_collector_rests_meanwhile_and_walks_over_nothing_young_afterwards():
    gc.enable()
    with collection_paused():
        assert not gc.isenabled()
        made = [[] for _ in range(10)]
    assert gc.isenabled()
    assert is_old(made)


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with collection_paused():
        pass
    assert not gc.isenabled()


def test_objects_that_an_application_froze_stay_frozen():
    gc.enable()
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collection_paused():
        pass
    assert gc.get_freeze_count() >= frozen - 100  # some ended meanwhile
