"""Which states a run lets go of on the server, and which it keeps."""

import asyncio
from types import SimpleNamespace

import pytest

from evsys_backend_tinker import states as module
from evsys_backend_tinker.states import States


class Stream:
    """Saves at once."""

    def submit(self, call):
        model = SimpleNamespace(model_id="run", save_state=lambda name, ttl_seconds: name)
        path = f"tinker://run/weights/{call.make(model).split('-')[1]}"

        async def saved():
            return path

        return saved()

    def saved(self, call):
        """Nothing to do here."""


class Waiting:
    async def in_thread(self, call, kind):
        return call()


class Kept:
    """States, and what was asked of the server about them."""

    def __init__(self, monkeypatch, **fields):
        self.asked = []
        monkeypatch.setattr(
            module, "delete", lambda api, path, seconds: self.asked.append(("delete", path[-1]))
        )
        monkeypatch.setattr(
            module, "set_ttl", lambda api, path, ttl, seconds: self.asked.append((ttl, path[-1]))
        )
        server = SimpleNamespace(api=lambda: None, base=SimpleNamespace(base_url="http://127.0.0.1:1"))
        self.states = States(
            server=server, waiting=Waiting(), **{"ttl": 3600, "final_ttl": None, "keep": None, **fields}
        )

    def do(self, *what):
        """Save the states of these steps, or keep those that are given as addresses."""

        async def run():
            for one in what:
                if isinstance(one, int):
                    await self.states.save(Stream(), version=one, check=None)
                elif one == "finish":
                    await self.states.finish()
                else:
                    await self.states.keep_best(f"tinker://run/weights/{one}")

        asyncio.run(run())
        return self.asked


@pytest.fixture
def kept(monkeypatch):
    return lambda **fields: Kept(monkeypatch, **fields)


def test_all_but_the_last_ones_are_deleted(kept):
    assert kept(keep=2).do(1, 2, 3, 4) == [("delete", "1"), ("delete", "2")]


def test_the_best_one_stays_however_old_it_is(kept):
    assert kept(keep=1, final_ttl=3600).do(1, "1", 2, 3, 4) == [("delete", "2"), ("delete", "3")]


def test_what_was_the_best_is_deleted_like_any_other_once_there_is_a_better_one(kept):
    assert kept(keep=1, final_ttl=3600).do(1, "1", 2, 3, "3") == [("delete", "2"), ("delete", "1")]


def test_the_best_one_expires_as_the_last_one_and_what_was_the_best_as_all_others(kept):
    assert kept().do(1, "1", 2, "2", 3, "finish") == [(None, "1"), (None, "2"), (3600, "1"), (None, "3")]


def test_what_a_cut_off_run_had_last_expires_as_all_others_once_there_is_another(kept):
    """When it was cut off, its last state was kept like that of a run that is over."""
    assert kept(resumed="tinker://run/weights/1").do(2, 3, "finish") == [(3600, "1"), (None, "3")]
    assert kept(resumed="tinker://run/weights/1").do("1", 2, "2") == [(None, "1"), (None, "2"), (3600, "1")]


def test_a_last_state_that_is_the_best_is_set_once(kept):
    assert kept().do(1, "1", "1", "finish") == [(None, "1")]


def test_nothing_is_said_where_all_states_stay_as_long(kept):
    assert kept(final_ttl=3600).do(1, "1", 2, "finish") == []


def test_a_state_of_an_earlier_attempt_may_be_the_best(kept):
    """A resumed run knows of it, and the server lets it expire again once there is a better one."""
    assert kept(keep=1).do("1", 2, 3, "3") == [(None, "1"), ("delete", "2"), (None, "3"), (3600, "1")]
