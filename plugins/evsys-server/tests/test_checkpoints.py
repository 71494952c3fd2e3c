import asyncio
import errno
import json
import shutil
import threading
from pathlib import Path

import pytest
from wire_client import FailedError, Model, Sampler, WireError, datum

from evsys.errors import BackendError, StoreError
from evsys.types import ModelSpec
from evsys_backend_mock.sampler import MockSampler
from evsys_record.files import write_json
from evsys_server.checkpoints import CheckpointStore, Saved
from evsys_server.errors import RefusedError

HOUR = 3600


async def trained(client, steps: int = 3) -> Model:
    model = await client.new_model()
    for _ in range(steps):
        await model.forward_backward([datum()])
        await model.optim_step()
    return model


async def loss(model: Model) -> float:
    return (await model.forward_backward([datum()], forward_only=True)).metrics["loss:sum"]


async def another_step(model: Model) -> float:
    await model.forward_backward([datum()])
    await model.optim_step()
    return await loss(model)


async def loaded(client, path: str, *, optimizer: bool, number: int = 5) -> Model:
    session = await client.new_session()
    made = await client.promised(
        "load_weights", session_id=session, model_seq_id=number, path=path, optimizer=optimizer
    )
    assert made["model_id"] == f"{session}:train:{number}"
    return Model(client, session, made["model_id"])


def test_a_model_that_is_made_from_a_checkpoint_goes_on_as_the_old_one_does(with_server):
    async def work(client):
        model = await trained(client)
        path = (await model.call("save_weights", path="mid"))["path"]
        goes_on = await loaded(client, path, optimizer=True)
        begins = await loaded(client, path, optimizer=False)
        now = [await loss(one) for one in (model, goes_on, begins)]
        return path, now, [await another_step(one) for one in (model, goes_on, begins)]

    path, now, then = with_server(work)
    assert path.startswith("tinker://")
    assert path.endswith("/weights/mid")
    assert now[0] == now[1] == now[2]
    assert then[0] == then[1]
    assert then[2] != then[0]


def test_a_checkpoint_is_loaded_onto_a_model_that_is_there(with_server):
    async def work(client):
        model = await trained(client)
        path = (await model.call("save_weights", path="mid"))["path"]
        at = await loss(model)
        moved = await another_step(model)
        await model.call("load_weights", path=path, optimizer=True)
        return at, moved, await loss(model), await another_step(model)

    at, moved, back, again = with_server(work)
    assert (back, again) == (at, moved)


def test_a_restart_finds_what_was_saved_and_no_more(with_server):
    async def first(client):
        model = await trained(client)
        path = (await model.call("save_weights", path="kept", user_metadata={"note": "x"}))["path"]
        sampled = (await model.call("save_weights_for_sampler", path="for-later"))["path"]
        await model.sampler()
        return path, sampled, await loss(model)

    path, sampled, before = with_server(first)

    async def second(client):
        model = await loaded(client, path, optimizer=True)
        session = await client.new_session()
        made = await client.post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0, model_path=sampled
        )
        sampler = Sampler(client, made["sampling_session_id"])
        sample = await sampler.sample(list(b"hello world"), max_tokens=1, prompt_logprobs=True)
        listed = await client.call("GET", "checkpoints")
        return await loss(model), sample, listed["checkpoints"]

    after, sample, listed = with_server(second)
    assert after == before
    assert sum(sample.prompt_logprobs[1:]) == pytest.approx(-before, rel=1e-5)
    assert {one["tinker_path"] for one in listed} == {path, sampled}
    assert {one["tinker_path"]: one["user_metadata"] for one in listed}[path] == {"note": "x"}


def test_a_name_that_is_taken_is_refused_unless_it_may_be_replaced(with_server):
    async def work(client):
        model = await trained(client)
        path = (await model.call("save_weights", path="one"))["path"]
        with pytest.raises(FailedError, match="exists already") as failed:
            await model.call("save_weights", path="one")
        first = await loss(await loaded(client, path, optimizer=True))
        now = await another_step(model)
        await model.call("save_weights", path="one", overwrite=True)
        second = await loss(await loaded(client, path, optimizer=True))
        listed = await client.call("GET", "checkpoints")
        return failed.value.category, first, now, second, listed["cursor"]["total_count"]

    category, first, now, second, count = with_server(work)
    assert (category, count) == ("user", 1)
    assert second == now != first


def test_a_save_that_is_sent_again_conflicts_with_nothing(with_server):
    async def work(client):
        model = await trained(client)
        body = {"model_id": model.id, "seq_id": model.seq(), "path": "one"}
        return [await client.promised("save_weights", **body) for _ in range(2)]

    one, other = with_server(work)
    assert one == other


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a" * 300, 5])
def test_a_name_that_cant_be_one_is_refused(with_server, name):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError):
            await model.call("save_weights", path=name)
        return await model.call("save_weights", path="fine")

    assert with_server(work)


@pytest.mark.parametrize("ttl", [1, HOUR - 1, 11 * 366 * 24 * HOUR, -5])
def test_a_time_to_live_that_isnt_allowed_is_refused(with_server, ttl):
    async def work(client):
        model = await client.new_model()
        with pytest.raises(FailedError, match="ttl_seconds"):
            await model.call("save_weights", path="x", ttl_seconds=ttl)

    with_server(work)


def test_what_isnt_there_cant_be_loaded(with_server):
    async def work(client):
        session = await client.new_session()
        body = {
            "session_id": session,
            "model_seq_id": 0,
            "path": "tinker://x:train:0/weights/none",
            "optimizer": True,
        }
        statuses = []
        for path, fields in (
            ("load_weights", body),
            (
                "create_sampling_session",
                {"session_id": session, "sampling_session_seq_id": 0, "model_path": body["path"]},
            ),
            ("weights_info", {"tinker_path": body["path"]}),
        ):
            with pytest.raises(WireError, match="may have expired or been deleted") as refused:
                await client.post(path, **fields)
            statuses.append(refused.value.status)
        return statuses

    assert with_server(work) == [404, 404, 404]


def test_what_was_saved_for_a_session_goes_with_it(with_server, tmp_path: Path):
    async def work(client):
        model = await trained(client)
        await model.sampler()
        kept = (await model.call("save_weights", path="kept"))["path"]
        inside = len(list((tmp_path / "server").rglob("checkpoint.json")))
        await client.post(f"sessions/{model.session}/finish", reason={"type": "success"})
        return kept, inside

    kept, inside = with_server(work)
    (left,) = (tmp_path / "server").rglob("checkpoint.json")
    assert inside == 2
    assert json.loads(left.read_text(encoding="utf-8"))["path"] == kept


# --- the store itself -------------------------------------------------------------------------------------------


class Writer:
    """A training client as far as a store looks at it."""

    def __init__(self, content: str = "weights", fail: Exception | None = None) -> None:
        self.content = content
        self.fail = fail

    async def save_state(self, directory: Path):
        (directory / "w").write_text(self.content, encoding="utf-8")
        if self.fail is not None:
            raise self.fail
        return {"file": "w"}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def draft(store: CheckpointStore, name: str = "a", **fields) -> Saved:
    given = {
        "path": store.address("s:train:0", "weights", name),
        "run": "s:train:0",
        "kind": "weights",
        "name": name,
        "spec": ModelSpec(name="evsys/tiny"),
        "seed": 1,
        "step": 2,
        "state": {},
        "created": 0.0,
    }
    return Saved(**{**given, **fields})


def save(store: CheckpointStore, name: str = "a", *, writer: Writer | None = None, **options) -> Saved:
    fields = {key: options.pop(key) for key in ("expires", "session") if key in options}
    return asyncio.run(store.save(draft(store, name, **fields), writer or Writer(), **options))


def test_a_checkpoint_is_found_by_the_next_store_as_it_was(tmp_path: Path):
    saved = save(CheckpointStore(tmp_path))
    again = CheckpointStore(tmp_path)
    assert again.find(saved.path) == saved
    folder = again.restorable(saved, with_optimizer=True).directory
    assert (folder / "w").read_text(encoding="utf-8") == "weights"
    assert saved.size_bytes == len("weights")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("odd")])
def test_a_save_that_fails_leaves_nothing_and_what_was_there(tmp_path: Path, error):
    store = CheckpointStore(tmp_path)
    saved = save(store)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((StoreError, ValueError)):
        save(store, writer=Writer("new", fail=error), overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before
    assert store.find(saved.path) == saved


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path):
    store = CheckpointStore(tmp_path)
    with pytest.raises(StoreError, match="No space left on device; hint: free some space|No space left"):
        save(store, writer=Writer(fail=OSError(errno.ENOSPC, "No space left on device")))


def test_a_half_written_checkpoint_of_a_killed_server_is_swept_away(tmp_path: Path):
    saved = save(CheckpointStore(tmp_path))
    folder = tmp_path / saved.folder
    shutil.copytree(folder, folder.with_name(".b.123-abc.tmp"))
    again = CheckpointStore(tmp_path)
    assert [one.path for one in again.all()] == [saved.path]
    assert not list(tmp_path.rglob("*.tmp"))


def test_of_two_with_one_address_the_later_is_kept(tmp_path: Path):
    clock = Clock()
    store = CheckpointStore(tmp_path, clock=clock)
    first = save(store)
    shutil.copytree(tmp_path / first.folder, tmp_path / "kept")
    clock.now += 1
    second = save(store, writer=Writer("new"), overwrite=True)
    shutil.move(tmp_path / "kept", tmp_path / first.folder)  # as if killed before the old one was removed
    again = CheckpointStore(tmp_path)
    assert again.find(first.path) == second
    assert not (tmp_path / first.folder).exists()


def test_what_expires_is_gone_with_its_files_and_not_a_moment_earlier(tmp_path: Path):
    clock = Clock()
    store = CheckpointStore(tmp_path, clock=clock)
    saved = save(store, expires=store.expiry(HOUR))
    clock.now += HOUR - 1
    assert store.find(saved.path)
    clock.now += 1
    with pytest.raises(RefusedError, match="may have expired"):
        store.find(saved.path)
    assert not list(tmp_path.rglob("checkpoint.json"))


def test_a_time_to_live_can_be_changed_and_survives(tmp_path: Path):
    clock = Clock()
    store = CheckpointStore(tmp_path, clock=clock)
    saved = save(store, expires=store.expiry(HOUR))
    store.set_ttl(saved.path, None)
    clock.now += 10 * HOUR
    assert CheckpointStore(tmp_path, clock=clock).find(saved.path).expires is None
    store.set_ttl(saved.path, HOUR)
    clock.now += HOUR
    assert CheckpointStore(tmp_path, clock=clock).all() == []


def test_what_belongs_to_a_session_isnt_found_by_the_next_store(tmp_path: Path):
    save(CheckpointStore(tmp_path), session="s")
    assert CheckpointStore(tmp_path).all() == []
    assert not list(tmp_path.rglob("checkpoint.json"))


class Log:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict]] = []

    def _say(self, event: str, **fields) -> None:
        self.said.append((event, fields))

    debug = info = warning = error = _say


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:50],
        lambda text: "[]",
        lambda text: text.replace('"run"', '"ran"'),
        lambda text: text.replace('"seed":', '"seed": "x", "sead":'),
        lambda text: text.replace('"format": 1', '"format": 99'),
    ],
)
def test_a_damaged_checkpoint_is_left_out_with_a_warning_and_left_where_it_is(tmp_path: Path, damage):
    store = CheckpointStore(tmp_path)
    good, bad = save(store, "good"), save(store, "bad")
    manifest = tmp_path / bad.folder / "checkpoint.json"
    text = manifest.read_text(encoding="utf-8")
    assert damage(text) != text
    manifest.write_text(damage(text), encoding="utf-8")
    log = Log()
    assert CheckpointStore(tmp_path, log=log).all() == [good]
    ((event, fields),) = log.said
    assert (event, fields["path"]) == ("checkpoint.left_out", str(manifest))
    assert manifest.exists()


def test_a_manifest_cant_name_a_folder_that_isnt_its_own(tmp_path: Path):
    store = CheckpointStore(tmp_path / "store")
    saved = save(store)
    precious = tmp_path / "precious"
    precious.mkdir()
    manifest = tmp_path / "store" / saved.folder / "checkpoint.json"
    fields = json.loads(manifest.read_text(encoding="utf-8"))
    manifest.write_text(json.dumps({**fields, "folder": "../precious"}), encoding="utf-8")
    CheckpointStore(tmp_path / "store").delete(saved.path)
    assert precious.exists()
    assert not manifest.exists()


def test_a_save_that_is_cancelled_waits_for_the_thread_that_writes_and_leaves_nothing(tmp_path: Path):
    started, go_on = threading.Event(), threading.Event()

    class Slow(Writer):
        async def save_state(self, directory: Path):
            def write():
                started.set()
                go_on.wait(10)
                directory.mkdir(exist_ok=True)  # brings back what was removed meanwhile
                (directory / "w").write_text("late", encoding="utf-8")

            await asyncio.to_thread(write)
            return {}

    async def main():
        store = CheckpointStore(tmp_path)
        saving = asyncio.create_task(store.save(draft(store), Slow()))
        await asyncio.to_thread(started.wait, 10)
        saving.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await saving
        return store.all()

    assert asyncio.run(main()) == []  # which ends after all threads have
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("w"))


@pytest.mark.parametrize("durable", [True, False])
def test_a_manifest_is_written_outside_of_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
):
    writing = []

    def write(path: Path, manifest: object) -> None:
        writing.append(threading.current_thread())
        write_json(path, manifest)

    monkeypatch.setattr("evsys_server.checkpoints.write_json", write)
    store = CheckpointStore(tmp_path)
    saved = asyncio.run(store.save(draft(store), Writer(), durable=durable))
    assert CheckpointStore(tmp_path).all() == [saved]
    (thread,) = writing
    assert thread is not threading.current_thread()


def test_clients_arent_told_where_the_server_keeps_its_files(with_server, tmp_path: Path):
    async def first(client):
        return (await (await trained(client)).call("save_weights_for_sampler", path="s"))["path"]

    path, log = with_server(first), Log()
    for weights in (tmp_path / "server").rglob("*.npz"):
        weights.unlink()

    async def second(client):
        session = await client.new_session()
        made = await client.post(
            "create_sampling_session", session_id=session, sampling_session_seq_id=0, model_path=path
        )
        with pytest.raises(FailedError) as failed:
            await Sampler(client, made["sampling_session_id"]).sample([1])
        body = {"model": path, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        openai = client.url.replace("/api/v1", "/v1/chat/completions")
        async with client.session.post(openai, json=body) as response:
            return str(failed.value), response.status, await response.text()

    told, status, openai = with_server(second, log=log)
    assert status == 500
    for message in (told, openai):
        assert ".npz" in message
        assert str(tmp_path) not in message
    assert any(str(tmp_path) in fields.get("reason", "") for _, fields in log.said)


@pytest.mark.parametrize("error", [BackendError, StoreError, OSError])
def test_clients_arent_told_where_files_lie_that_sampling_fails_over(
    with_server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error
):
    async def fail(self, prompt, params, n=1):
        raise error(f"{tmp_path}/server/adapters/1/weights.npz is damaged")

    monkeypatch.setattr(MockSampler, "sample", fail)
    log = Log()

    async def ask(client):
        body = {"model": "evsys/tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        openai = client.url.replace("/api/v1", "/v1/chat/completions")
        async with client.session.post(openai, json=body) as response:
            return response.status, (await response.json())["error"]

    status, told = with_server(ask, log=log)
    assert (status, told["code"]) == (500, "internal_error")
    assert told["message"].endswith("weights.npz is damaged")
    assert str(tmp_path) not in told["message"]
    assert any(str(tmp_path) in fields.get("reason", "") for _, fields in log.said)
