"""A deployment: only what was promoted, proven to be what was scored, with a way back that was tried."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from evsys import Registry, structure
from evsys.errors import ConfigError, DeployError
from evsys.optional import SupportsSwitch
from evsys.types import Checkpoint
from evsys_deployers.gate.record import GateRecord, read_gate, require_promotion
from evsys_deployers.gate.scoring import checkpoint_digest
from evsys_deployers.parity import Parity, prove_parity
from evsys_record import make_directory
from evsys_record.encoding import as_tree
from evsys_record.jsonl import append_record, read_jsonl
from evsys_runtime.config.placeholders import resolve

__all__ = ["Deployment", "deploy", "deployments", "roll_back"]

LOG = ".evsys/deployments.jsonl"


@attrs.frozen(kw_only=True)
class Deployment:
    """One move of a model into use.

    Attributes:
        time: when it was in use.
        action: `deploy` or `rollback`.
        target: kind and params of the deployer.
        place: where the model is, as the deployer says.
        previous: the place of the model before; None for the first.
        checkpoint: its folder, and `digest` the hash of its weights.
        gate: the gate record's path; None without one.
        override: the reason for deploying without a promotion.
        parity: the proof that what was deployed is what was scored; None if there was nothing to compare with.
        rollback_seconds: how long switching back took, when it was rehearsed; None without a model before.
    """

    time: str
    action: str
    target: Mapping[str, Any]
    place: Mapping[str, Any]
    previous: Mapping[str, Any] | None
    checkpoint: str
    digest: str
    gate: str | None = None
    override: str | None = None
    parity: Parity | None = None
    rollback_seconds: float | None = None


async def deploy(
    checkpoint: Path,
    target: Mapping[str, Any],
    *,
    root: Path,
    registry: Registry,
    gate: Path | None,
    override: str | None = None,
    tolerance: float = 1e-3,
) -> Deployment:
    """Deploy a checkpoint, and put it into use once it is proven.

    Args:
        checkpoint: its folder, an absolute path.
        target: `kind` and `params` of the deployer.
        root: the project.
        registry: where the deployer and the backend are looked up.
        gate: the gate record that promotes it.
        override: a reason to deploy without a promotion, which is recorded.
        tolerance: the largest difference of a logprob in the proof.

    Raises:
        DeployError: it wasn't promoted, or the deployed model isn't the one that was scored; what was in use still is.
        ConfigError: no gate record and no override.
    """
    record = _permission(checkpoint, gate, override)
    deployer = registry.build("deployer", target["kind"], resolve(target["params"]))
    place = dict(await deployer.deploy(Checkpoint(step=0, directory=checkpoint)))
    previous, parity, seconds = None, None, None
    if isinstance(deployer, SupportsSwitch):
        previous = await deployer.active()
        if record is not None:
            parity = await prove_parity(
                await deployer.read_back(place),
                checkpoint,
                Path(record.records[0]),
                model=record.candidate.model,
                backend=record.candidate.backend,
                registry=registry,
                tolerance=tolerance,
            )
        await deployer.activate(place)
        if previous is not None and previous["path"] != place["path"]:
            seconds = await _rehearse(deployer, previous, place)
    done = Deployment(
        time=_now(),
        action="deploy",
        target=target,
        place=place,
        previous=previous,
        checkpoint=str(checkpoint),
        digest=checkpoint_digest(checkpoint),
        gate=None if gate is None else str(gate),
        override=override,
        parity=parity,
        rollback_seconds=seconds,
    )
    _log(root, done)
    return done


def _permission(checkpoint: Path, gate: Path | None, override: str | None) -> GateRecord | None:
    """The gate record; None for an override without one."""
    if override is None:
        if gate is None:
            raise ConfigError(
                "nothing promotes this checkpoint",
                hint="pass --gate with the record of `evsys gate`, or --override REASON",
            )
        return require_promotion(gate, checkpoint)
    if not override.strip():
        raise ConfigError("an override needs a reason")
    if gate is None:
        return None
    record = read_gate(gate)
    if record.candidate.digest != checkpoint_digest(checkpoint):
        raise DeployError(f"{gate} is about other weights than those of {checkpoint}")
    return record


async def _rehearse(deployer: SupportsSwitch, previous: Mapping[str, Any], place: Mapping[str, Any]) -> float:
    """Seconds of switching back; afterwards the new model is in use again."""
    begun = time.monotonic()
    await deployer.activate(previous)
    seconds = time.monotonic() - begun
    await deployer.activate(place)
    return seconds


async def roll_back(root: Path, registry: Registry, target: Mapping[str, Any] | None = None) -> Deployment:
    """Put the model before into use again.

    Args:
        root: the project.
        registry: where the deployer is looked up.
        target: whose; None for the only one.

    Raises:
        ConfigError: there is no deployment, several targets, or no model before.
    """
    current = {_key(each.target): each for each in deployments(root)}
    chosen = [each for key, each in current.items() if target is None or key == _key(target)]
    if len(chosen) != 1:
        names = "; ".join(sorted(current)) or "none"
        raise ConfigError(
            f"which deployment? There are: {names}", hint="name its deployer with --to and --param"
        )
    (latest,) = chosen
    if latest.previous is None:
        raise ConfigError("there is no model before the one in use")
    place = latest.previous
    origin = next((each for each in reversed(deployments(root)) if each.place["path"] == place["path"]), None)
    deployer = registry.build("deployer", latest.target["kind"], resolve(latest.target["params"]))
    if not isinstance(deployer, SupportsSwitch):
        raise ConfigError(
            f"deployer {latest.target['kind']!r} can't switch back", hint="deploy the older checkpoint"
        )
    await deployer.activate(place)
    done = Deployment(
        time=_now(),
        action="rollback",
        target=latest.target,
        place=place,
        previous=latest.place,
        checkpoint="" if origin is None else origin.checkpoint,
        digest="" if origin is None else origin.digest,
        gate=None if origin is None else origin.gate,
    )
    _log(root, done)
    return done


def deployments(root: Path) -> list[Deployment]:
    """All deployments of a project, the earliest first.

    Raises:
        StoreError: the log is damaged.
    """
    return list(_read(root))


def _read(root: Path) -> Iterator[Deployment]:
    for tree in read_jsonl(root / LOG, missing_ok=True):
        yield structure(Deployment, {name: value for name, value in tree.items() if name != "format"})


def _log(root: Path, deployment: Deployment) -> None:
    make_directory((root / LOG).parent)
    append_record(root / LOG, as_tree(attrs.asdict(deployment)))


def _key(target: Mapping[str, Any]) -> str:
    params = " ".join(f"{name}={value}" for name, value in sorted(target["params"].items()))
    return f"{target['kind']} {params}".strip()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
