"""`wandb`: what offline runs hold, and what they must not."""

import json
import struct

import pytest
from attempts import attempt, context, needs

from evsys.errors import PluginLoadError
from evsys_loggers.wandb import WandbLogger

pytestmark = needs("wandb")

BLOCK = 32768


def records(folder):
    """The records of an offline run: protocol buffers in LevelDB's log format."""
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("*.wandb")
    data, position, part = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        part += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield wandb_internal_pb2.Record.FromString(part)
            part = b""


def read(folder):
    run, history, summary = None, [], {}
    for record in records(folder):
        if record.HasField("run"):
            run = record.run
        if record.HasField("history"):
            history.append(
                {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item}
            )
        if record.HasField("summary"):
            summary |= {
                "/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.summary.update
            }
    return run, history, summary


def folders(ctx):
    import wandb

    wandb.teardown()  # its service may still have records in memory when a run is finished
    return sorted((ctx.run_dir / "loggers" / "wandb").glob("offline-run-*"))


def test_an_offline_run_holds_metrics_scores_config_and_end(tmp_path):
    ctx = context(tmp_path)
    attempt(WandbLogger(project="mine", tags=("one",), entity="us"), ctx, range(1, 6), [(0, 0.25), (3, 0.5)])
    (folder,) = folders(ctx)
    run, history, summary = read(folder)
    assert (run.project, run.entity, list(run.tags)) == ("mine", "us", ["one"])
    assert run.display_name == "20260101-000000-trial/a-s0"
    assert (run.run_group, run.job_type) == ("20260101-000000-trial", "a")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["algorithm"]["params"]["learning_rate"] == 0.01
    assert config["evsys"]["run"] == "a-s0"
    assert [(h["step"], h["training/loss"]) for h in history if "training/loss" in h] == [
        (step, float(step)) for step in range(1, 6)
    ]
    assert [(h["step"], h["val/val/pass@1"]) for h in history if "val/val/pass@1" in h] == [
        (0, 0.25),
        (3, 0.5),
    ]
    assert summary["evsys/stop_reason"] == "early_stopping: enough"


def test_a_resumed_attempt_goes_on_with_the_same_run(tmp_path):
    ctx = context(tmp_path)
    attempt(WandbLogger(), ctx, [1, 2], status="cancelled")
    (first,) = folders(ctx)
    attempt(WandbLogger(), context(tmp_path, attempt=2, from_step=1), [2, 3])
    (second,) = set(folders(ctx)) - {first}
    found = [read(folder) for folder in (first, second)]
    assert found[0][0].run_id == found[1][0].run_id
    assert [(h["attempt"], h["step"]) for _, history, _ in found for h in history if "step" in h] == [
        *((1, 1), (1, 2)),
        *((2, 2), (2, 3)),
    ]


def test_neither_command_line_nor_environment_reach_its_files(tmp_path, monkeypatch):
    canary = "canary-4f9a1b7c2d8e6f3a"
    monkeypatch.setattr("sys.argv", ["evsys", "run", "--set", f"run.backend.params.api_key={canary}"])
    monkeypatch.setenv("SOME_API_KEY", canary)
    ctx = context(tmp_path, config={"backend": {"params": {"api_key": canary, "note": f"it is {canary}"}}})
    attempt(WandbLogger(tags=("one",)), ctx, [1])
    assert len(folders(ctx)) == 1
    files = [path for path in (ctx.run_dir / "loggers").rglob("*") if path.is_file()]
    assert len(files) > 2
    assert [path for path in files if canary.encode() in path.read_bytes()] == []


def test_sending_at_once_without_a_key_is_an_error_before_anything_is_run(tmp_path, monkeypatch):
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / "netrc"
    monkeypatch.setenv("NETRC", str(netrc))
    with pytest.raises(PluginLoadError, match="set WANDB_API_KEY, run `wandb login`, or set mode: offline"):
        WandbLogger(mode="online")
    netrc.write_text("machine api.wandb.ai login user password abcdef\n", encoding="utf-8")
    netrc.chmod(0o600)
    WandbLogger(mode="online")
    monkeypatch.setenv("WANDB_BASE_URL", "http://localhost:8080")
    with pytest.raises(PluginLoadError):
        WandbLogger(mode="online")
    monkeypatch.setenv("WANDB_API_KEY", "abcdef")
    WandbLogger(mode="online")
