import pytest
from wire_client import WireError, datum

from evsys_backend_mock import MockBackend


async def with_checkpoints(client):
    session = (
        await client.post(
            "create_session",
            tags=[],
            user_metadata={"team": "blue"},
            sdk_version="test",
            display_name="First Try",
        )
    )["session_id"]
    model = await client.new_model(session, user_metadata={"note": "n"})
    await model.forward_backward([datum()])
    await model.optim_step()
    paths = [(await model.call("save_weights", path=f"c{n}"))["path"] for n in range(3)]
    sampler = (await model.call("save_weights_for_sampler", path="s"))["path"]
    return model, paths, sampler


def test_runs_are_listed_with_their_last_checkpoints(with_server):
    async def work(client):
        model, paths, sampler = await with_checkpoints(client)
        listed = await client.call("GET", "training_runs")
        return model, paths, sampler, listed, await client.call("GET", f"training_runs/{model.id}")

    model, paths, sampler, listed, run = with_server(work)
    assert listed["training_runs"] == [run]
    assert listed["cursor"] == {"offset": 0, "limit": 20, "total_count": 1}
    assert (run["training_run_id"], run["base_model"], run["lora_rank"]) == (model.id, "evsys/tiny", 4)
    assert run["last_checkpoint"]["tinker_path"] == paths[-1]
    assert run["last_sampler_checkpoint"]["tinker_path"] == sampler
    assert run["user_metadata"] == {"note": "n"}


def test_a_run_whose_session_ended_is_listed_by_its_checkpoints(with_server):
    async def work(client):
        model, _, _ = await with_checkpoints(client)
        await client.post(f"sessions/{model.session}/finish", reason={"type": "success"})
        return model.id, (await client.call("GET", "training_runs"))["training_runs"]

    run, listed = with_server(work)
    assert [one["training_run_id"] for one in listed] == [run]


def test_checkpoints_are_listed_newest_first_in_pages(with_server):
    async def work(client):
        model, paths, sampler = await with_checkpoints(client)
        pages = [await client.call("GET", f"checkpoints?limit=3&offset={offset}") for offset in (0, 3)]
        return paths, sampler, pages, await client.call("GET", f"training_runs/{model.id}/checkpoints")

    paths, sampler, pages, own = with_server(work)
    listed = [one["tinker_path"] for page in pages for one in page["checkpoints"]]
    assert listed == [sampler, *reversed(paths)]
    assert [one["tinker_path"] for one in own["checkpoints"]] == listed
    first = own["checkpoints"][-1]
    assert (first["checkpoint_id"], first["checkpoint_type"]) == ("weights/c0", "training")
    assert first["size_bytes"] > 0


def test_a_checkpoint_is_deleted_and_cant_be_loaded_any_more(with_server):
    async def work(client):
        model, paths, sampler = await with_checkpoints(client)
        for path in (paths[0], sampler):
            kind, name = path.split("/")[-2:]
            await client.call("DELETE", f"training_runs/{model.id}/checkpoints/{kind}/{name}")
        left = [one["tinker_path"] for one in (await client.call("GET", "checkpoints"))["checkpoints"]]
        with pytest.raises(WireError, match="there is no checkpoint"):
            await client.post(
                "create_sampling_session",
                session_id=model.session,
                sampling_session_seq_id=0,
                model_path=sampler,
            )
        return paths, left

    paths, left = with_server(work)
    assert left == [paths[2], paths[1]]


def test_a_time_to_live_is_set_and_taken_back(with_server):
    async def work(client):
        model, _, _ = await with_checkpoints(client)
        path = f"training_runs/{model.id}/checkpoints/weights/c0/ttl"
        times = [(await client.call("PUT", path, {"ttl_seconds": ttl}))["expires_at"] for ttl in (3600, None)]
        with pytest.raises(WireError) as refused:
            await client.call("PUT", path, {"ttl_seconds": 5})
        return times, refused.value.status

    (until, never), status = with_server(work)
    assert until
    assert never is None
    assert status == 400


def test_what_a_checkpoint_holds_is_told(with_server):
    async def work(client):
        _, paths, _ = await with_checkpoints(client)
        return await client.post("weights_info", tinker_path=paths[0])

    info = with_server(work)
    assert (info["base_model"], info["is_lora"], info["lora_rank"]) == ("evsys/tiny", True, 4)
    assert (info["train_mlp"], info["train_attn"], info["train_unembed"]) == (True, True, False)


def test_sessions_are_listed_and_found(with_server):
    async def work(client):
        model, _, _ = await with_checkpoints(client)
        other = await client.new_session()
        await client.post(f"sessions/{other}/finish", reason={"type": "errored"}, detail="no luck")

        async def search(**body):
            return [one["session_id"] for one in (await client.post("sessions/search", **body))["sessions"]]

        assert await search(display_name="try first") == [model.session]
        assert await search(user_metadata={"team": "blue"}) == [model.session]
        assert await search(user_metadata={"team": "red"}) == []
        assert await search(session_id=other) == [other]
        assert await search(statuses=[{"type": "active"}]) == [model.session]
        assert await search(statuses=[{"type": "client_finished", "reasons": ["errored"]}]) == [other]
        assert await search(statuses=[{"type": "client_finished", "reasons": ["success"]}]) == []
        one = await client.call("GET", f"sessions/{model.session}")
        (summary,) = (await client.post("sessions/search", session_id=model.session))["sessions"]
        return model, other, (await client.call("GET", "sessions"))["sessions"], one, summary

    model, other, listed, one, summary = with_server(work)
    assert listed == [other, model.session]
    assert (one["training_run_ids"], one["display_name"]) == ([model.id], "First Try")
    assert summary["checkpoints_count"] == 4
    assert summary["checkpoint_storage_bytes"] > 0


@pytest.mark.parametrize(
    "body",
    [
        {"limit": "x"},
        {"limit": 10**30},
        {"statuses": "abc"},
        {"statuses": 5},
        {"statuses": ["active"]},
        {"statuses": {"type": "active"}},
        {"statuses": [{"type": "client_finished", "reasons": 5}]},
        {"statuses": [{"type": "client_finished", "reasons": "success"}]},
        {"display_name": 5},
        {"session_id": ["a"]},
        {"user_metadata": []},
    ],
)
@pytest.mark.parametrize("sessions", [0, 1])
def test_a_search_for_what_cant_be_is_refused(with_server, body, sessions):
    async def work(client):
        for _ in range(sessions):
            await client.post(f"sessions/{await client.new_session()}/finish", reason={"type": ["odd"]})
        with pytest.raises(WireError) as refused:
            await client.post("sessions/search", **body)
        return refused.value.status

    assert with_server(work) == 400


@pytest.mark.parametrize("fields", [{"display_name": 5}, {"user_metadata": "x"}, {"project_id": {}}])
def test_a_session_that_would_spoil_every_search_isnt_made(with_server, fields):
    async def work(client):
        with pytest.raises(WireError, match="400"):
            await client.post("create_session", **fields)
        return (await client.post("sessions/search"))["sessions"]

    assert with_server(work) == []


@pytest.mark.parametrize(
    "path", ["training_runs/x", "training_runs/x/checkpoints", "sessions/x", "samplers/x:sample:0"]
)
def test_what_isnt_there_is_told(with_server, path):
    async def work(client):
        await client.call("GET", path)

    with pytest.raises(WireError, match="404: there is no"):
        with_server(work)


@pytest.mark.parametrize(
    ("asked", "able", "told"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_capabilities_say_whether_bits_are_the_same_each_time(with_server, monkeypatch, asked, able, told):
    if not able:
        monkeypatch.setattr(MockBackend, "capabilities", MockBackend.capabilities - {"deterministic"})

    async def work(client):
        return await client.call("GET", "get_server_capabilities")

    assert with_server(work, deterministic=asked)["evsys_deterministic"] is told


@pytest.mark.parametrize("simulated", [True, False])
def test_capabilities_say_whether_a_model_is_only_imitated(with_server, monkeypatch, simulated):
    monkeypatch.setattr(MockBackend, "simulated", simulated)

    async def work(client):
        return await client.call("GET", "get_server_capabilities")

    assert with_server(work)["evsys_simulated"] is simulated


def test_capabilities_name_what_is_served(with_server):
    async def work(client):
        return await client.call("GET", "get_server_capabilities")

    (model,) = with_server(work, backend="local")["supported_models"]
    assert (model["model_name"], model["trainable"]) == ("evsys/tiny", True)
    assert model["max_context_length"] > 100
