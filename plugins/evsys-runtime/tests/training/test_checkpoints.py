"""Checkpoints of a run, and starting from those of another."""

import errno
import json
import os

import pytest
from training_runs import Rows

from evsys.errors import ConfigError, StoreError
from evsys.types import LoraSpec, ModelSpec
from evsys_backend_mock import MockBackend
from evsys_runtime.training.checkpoints import find_checkpoint


async def test_a_checkpoint_holds_the_backends_files_the_loops_state_and_the_whole_model(run):
    async with run.attempt(Rows()) as ctx:
        assert ctx.checkpoints.latest() is None
        assert ctx.checkpoints.restored is None
        saved = await ctx.checkpoints.save(5, ctx.clients.policy, {"position": 40})
        assert ctx.checkpoints.latest() == saved
    assert saved.step == 5
    assert saved.loop == {"position": 40}
    assert (saved.directory / saved.state["file"]).is_file()
    manifest = json.loads((saved.directory / "manifest.json").read_text(encoding="utf-8"))["manifest"]
    assert manifest["model"]["name"] == "evsys/tiny"
    assert manifest["model"]["lora"] == {"rank": 16, "alpha": 32.0, "targets": ["all-linear"]}


async def test_infinities_and_nan_of_a_state_come_back_as_they_were(run):
    state = {"best": float("inf"), "worst": [-float("inf"), 1.5, None], "odd": {"nan": float("nan")}}
    async with run.attempt(Rows()) as ctx:
        await ctx.checkpoints.save(5, ctx.clients.policy, {"algorithm": state})
        found = ctx.checkpoints.latest().loop["algorithm"]
    assert (found["best"], found["worst"]) == (float("inf"), [-float("inf"), 1.5, None])
    assert found["odd"]["nan"] != found["odd"]["nan"]


async def test_a_backend_that_fails_to_save_leaves_nothing_behind(run):
    class Failing:
        async def save_state(self, directory):
            (directory / "half").write_text("x", encoding="utf-8")
            raise OSError("no space left")

    async with run.attempt(Rows()) as ctx:
        with pytest.raises(OSError, match="no space"):
            await ctx.checkpoints.save(1, Failing(), {})
        assert ctx.checkpoints.latest() is None
        assert not list((run.directory / "checkpoints").iterdir())


async def test_a_full_disk_is_told_as_such_whoever_writes(run):
    class Filling:
        async def save_state(self, directory):
            (directory / "half").write_text("x", encoding="utf-8")
            raise OSError(errno.ENOSPC, "No space left on device")

    async with run.attempt(Rows()) as ctx:
        with pytest.raises(StoreError, match=r"checkpoint in .*: No space left on device; free some space"):
            await ctx.checkpoints.save(1, Filling(), {})
        assert not list((run.directory / "checkpoints").iterdir())


async def test_a_disk_that_is_full_when_the_files_are_made_durable_leaves_nothing_behind(run, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with run.attempt(Rows()) as ctx:
        with (
            monkeypatch.context() as patch,
            pytest.raises(StoreError, match="can't save checkpoint .*No space"),
        ):
            patch.setattr(os, "fsync", full)
            await ctx.checkpoints.save(1, ctx.clients.policy, {})
        assert ctx.checkpoints.latest() is None
        assert not list((run.directory / "checkpoints").iterdir())


async def test_what_is_no_json_is_refused_whole(run):
    async with run.attempt(Rows()) as ctx:
        with pytest.raises(StoreError):
            await ctx.checkpoints.save(1, ctx.clients.policy, {"odd": object()})
        assert ctx.checkpoints.latest() is None


async def test_a_resumed_attempt_knows_what_it_started_from(run):
    async with run.attempt(Rows()) as ctx:
        saved = await ctx.checkpoints.save(3, ctx.clients.policy, {"a": 1})
    async with run.attempt(Rows(), resume=True) as ctx:
        assert ctx.checkpoints.restored == saved
        assert (await ctx.clients.policy.sampling_client()).version == 3


async def _saved(run):
    async with run.attempt(Rows()) as ctx:
        await ctx.checkpoints.save(3, ctx.clients.policy, {})
    return "run-s0/checkpoints/3"


@pytest.mark.parametrize("key", ["init_from_checkpoint", "load_checkpoint_path"])
async def test_another_run_starts_from_a_folder_with_or_without_the_optimiser(run, tmp_path, key):
    model = ModelSpec(name="evsys/tiny", lora=LoraSpec(rank=16), **{key: await _saved(run)})
    found = find_checkpoint(model, tmp_path)
    assert found.step == 0  # no step of the new run is behind it
    assert found.with_optimizer == (key == "load_checkpoint_path")
    client = await MockBackend().prepare(model, tmp_path / "other", 7, found)
    assert (await client.sampling_client()).version == 0


async def test_a_model_that_names_no_folder_starts_from_nothing(tmp_path):
    assert find_checkpoint(ModelSpec(name="m"), tmp_path) is None
    assert (
        find_checkpoint(ModelSpec(name="m", init_from_checkpoint="tinker://run/weights/1"), tmp_path) is None
    )


async def test_an_adapter_from_elsewhere_gives_starting_weights_and_no_optimiser(tmp_path):
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}", encoding="utf-8")
    found = find_checkpoint(ModelSpec(name="m", init_from_checkpoint="adapter"), tmp_path)
    assert (found.step, found.directory, found.with_optimizer) == (0, tmp_path / "adapter", False)
    with pytest.raises(ConfigError, match="not a complete checkpoint"):
        find_checkpoint(ModelSpec(name="m", load_checkpoint_path="adapter"), tmp_path)


async def test_a_folder_that_is_no_checkpoint_or_does_not_fit_is_refused_with_the_key(run, tmp_path):
    name = await _saved(run)
    with pytest.raises(ConfigError, match=r"\$\.model\.init_from_checkpoint.*not a complete checkpoint"):
        find_checkpoint(ModelSpec(name="evsys/tiny", init_from_checkpoint="run-s0"), tmp_path)
    for model, message in (
        (ModelSpec(name="evsys/tiny", load_checkpoint_path=name), "lora_rank 16, this run has 32"),
        (ModelSpec(name="m", lora=LoraSpec(rank=16), load_checkpoint_path=name), "base model 'evsys/tiny'"),
    ):
        with pytest.raises(ConfigError, match=message):
            find_checkpoint(model, tmp_path)
