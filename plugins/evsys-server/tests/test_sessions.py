import asyncio

import pytest
from wire_client import FailedError, WireError, datum

from evsys_backend_mock.sampler import MockSampler
from evsys_server.app import make_service
from evsys_server.limits import Limits
from evsys_server.sessions import KEPT, Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_silent_when_nothing_is_heard_of_it():
    clock = Clock()
    sessions = Sessions(clock=clock)
    lively, silent = sessions.create({}), sessions.create({})
    clock.now = 200
    sessions.active(lively.id)
    clock.now = 301
    assert sessions.silent(300) == [silent]


def test_ended_sessions_are_forgotten_in_the_end_and_lasting_ones_never():
    sessions = Sessions()
    first = sessions.create({})
    for _ in range(KEPT + 5):
        sessions.end(sessions.create({}), {"type": "cancelled"})
    assert len(sessions.all()) == KEPT + 1
    assert sessions.find(first.id) is first


def test_a_heartbeat_of_a_session_that_ended_or_is_unknown_says_so(with_server):
    async def work(client):
        session = await client.new_session()
        await client.post("session_heartbeat", session_id=session)
        await client.post(f"sessions/{session}/finish", reason={"type": "success"})
        statuses = []
        for one in (session, "f" * 32):
            with pytest.raises(WireError) as refused:
                await client.post("session_heartbeat", session_id=one)
            statuses.append(refused.value.status)
        return statuses

    assert with_server(work) == [410, 410]


def test_a_session_that_ends_frees_its_models_and_keeps_the_first_reason(with_server):
    async def work(client):
        model = await client.new_model()
        await model.forward_backward([datum()])
        sampler = await model.sampler()
        for reason in ("errored", "success"):
            await client.post(f"sessions/{model.session}/finish", reason={"type": reason}, detail=reason)
        refused = []
        for call in (model.optim_step, lambda: sampler.sample([1])):
            with pytest.raises(WireError) as error:
                await call()
            refused.append(error.value.status)
        (summary,) = (await client.post("sessions/search", session_id=model.session))["sessions"]
        return refused, summary["status"]

    refused, status = with_server(work)
    assert refused == [404, 404]
    assert status == {"type": "client_finished", "reason": {"type": "errored"}, "detail": "errored"}


def test_whoever_waits_when_a_session_ends_is_told(with_server):
    async def work(client):
        model = await client.new_model()
        waiting = await model.send(model.request([datum()], seq_id=5))
        fetching = asyncio.create_task(client.fetch(waiting))
        await client.post(f"sessions/{model.session}/finish", reason={"type": "success"})
        with pytest.raises(FailedError, match="has ended") as failed:
            await fetching
        return failed.value.category

    assert with_server(work) == "user"


def test_more_sessions_than_may_last_are_sent_away(with_server):
    async def work(client):
        first = await client.new_session()
        await client.new_session()
        with pytest.raises(WireError, match="429: 2 sessions last already"):
            await client.new_session()
        await client.post(f"sessions/{first}/finish", reason={"type": "success"})
        return await client.new_session()

    assert with_server(work, limits=Limits(sessions=2))


def test_an_unknown_session_cant_be_finished(with_server):
    async def work(client):
        await client.post("sessions/nobody/finish", reason={"type": "success"})

    with pytest.raises(WireError, match="404"):
        with_server(work)


def test_silent_sessions_are_ended_by_the_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr("evsys_server.service.SWEEP_SECONDS", 0.01)

    async def main():
        limits = Limits(session_seconds=0.0)
        async with make_service(
            backend="mock", models=["evsys/tiny"], directory=tmp_path, limits=limits
        ) as service:
            ended = asyncio.Event()
            monkeypatch.setattr(service.store, "end_session", lambda _: ended.set())
            session = service.sessions.create({})
            async with asyncio.timeout(10):
                await ended.wait()
            return session.status

    assert asyncio.run(main()) == {"type": "cancelled", "detail": "no heartbeat"}


def test_whoever_waits_is_told_also_where_what_the_session_held_cant_be_freed(with_server, monkeypatch):
    async def broken(_):
        raise RuntimeError("it is stuck")

    async def work(client):
        session = await client.new_session()
        models = [await client.new_model(session, number) for number in range(2)]
        await models[0].forward_backward([datum()])
        await models[0].sampler()
        waiting = [await model.send(model.request([datum()], seq_id=9)) for model in models]
        with monkeypatch.context() as patch:
            patch.setattr(MockSampler, "close", broken)
            await client.post(f"sessions/{session}/finish", reason={"type": "success"})
        for promise in waiting:
            with pytest.raises(FailedError, match="has ended"):
                await asyncio.wait_for(client.fetch(promise), 10)
        return await client.new_model()  # the places of both are free

    assert with_server(work, limits=Limits(models=2, poll_seconds=0.1))


def test_the_sweep_goes_on_whatever_it_cant_do(tmp_path, monkeypatch):
    monkeypatch.setattr("evsys_server.service.SWEEP_SECONDS", 0.01)

    async def main():
        limits = Limits(session_seconds=0.0)
        async with make_service(
            backend="mock", models=["evsys/tiny"], directory=tmp_path, limits=limits
        ) as service:
            failed, tried, ended = asyncio.Event(), [], asyncio.Event()

            def expire():
                failed.set()
                raise PermissionError("not yours")

            def end_session(session):
                tried.append(session)
                if len(tried) == 3:
                    ended.set()
                raise PermissionError("not yours")

            with monkeypatch.context() as patch:
                patch.setattr(service.store, "expire", expire)
                patch.setattr(service.store, "end_session", end_session)
                sessions = [service.sessions.create({}) for _ in range(2)]
                async with asyncio.timeout(10):
                    await failed.wait()
                    sessions.append(service.sessions.create({}))
                    await ended.wait()
            return [session.status for session in sessions]

    assert asyncio.run(main()) == [{"type": "cancelled", "detail": "no heartbeat"}] * 3
