"""Deploying: only what was promoted, proven to be what was scored, with a way back."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from gated_project import carry_out, checkpoint
from hypothesis import given
from hypothesis import strategies as st

from evsys.errors import ConfigError, DeployError, StoreError
from evsys.types import Checkpoint
from evsys_deployers.command import deploy, list_deployments, rollback
from evsys_deployers.folder import FolderDeployer
from evsys_deployers.gate.scoring import checkpoint_digest
from evsys_record import slug


def call(command, *arguments):
    done = CliRunner().invoke(command, [*map(str, arguments), "--json"], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return json.loads(done.stdout)


def promoted(run):
    return carry_out(run)[1]["record"]


def earlier(run):
    """A checkpoint of the run before its last one."""
    folder = checkpoint(run)
    return min((each for each in folder.parent.iterdir() if each.is_dir()), key=lambda each: int(each.name))


def test_what_was_promoted_is_proven_and_put_into_use(project):
    done = call(deploy, project, "--gate", promoted(project))
    assert (done["action"], done["override"]) == ("deploy", None)
    assert done["parity"]["answers"] == 50
    assert done["parity"]["largest_difference"] <= 1e-3
    assert Path("deployed/model").resolve() == Path(done["place"]["path"])
    assert not list(Path("deployed/model/").glob("optimizer*"))
    assert (
        checkpoint_digest(Path("deployed/model")) == checkpoint_digest(checkpoint(project)) == done["digest"]
    )


def test_nothing_is_deployed_without_a_promotion(project):
    with pytest.raises(ConfigError, match="nothing promotes this checkpoint"):
        call(deploy, project)
    with pytest.raises(ConfigError, match="an override needs a reason"):
        call(deploy, project, "--override", " ")
    assert not Path("deployed").exists()


def test_another_checkpoint_is_refused(project):
    gate = promoted(project)
    with pytest.raises(DeployError, match="has other weights"):
        call(deploy, earlier(project), "--gate", gate)
    assert not Path("deployed").exists()


def test_an_override_is_recorded_with_its_reason(project):
    call(deploy, project, "--override", "the old one leaks")
    (only,) = call(list_deployments)["deployments"]
    assert (only["override"], only["gate"], only["parity"]) == ("the old one leaks", None, None)


def test_the_way_back_is_rehearsed_and_taken(project):
    call(deploy, project, "--gate", promoted(project))
    first = Path("deployed/model").resolve()
    done = call(deploy, earlier(project), "--override", "to see")
    assert done["rollback_seconds"] >= 0
    assert Path("deployed/model").resolve() != first
    back = call(rollback)
    assert (back["action"], back["checkpoint"]) == ("rollback", str(checkpoint(project).resolve()))
    assert Path("deployed/model").resolve() == first
    forth = call(rollback)
    assert Path(forth["place"]["path"]) == Path("deployed/model").resolve() != first
    assert [each["action"] for each in call(list_deployments)["deployments"]] == [
        "deploy",
        "deploy",
        "rollback",
        "rollback",
    ]


def test_without_a_model_before_there_is_no_way_back(project):
    with pytest.raises(ConfigError, match="which deployment"):
        call(rollback)
    call(deploy, project, "--gate", promoted(project))
    with pytest.raises(ConfigError, match="no model before"):
        call(rollback)


def test_weights_that_answer_otherwise_are_not_put_into_use(project, monkeypatch):
    gate = promoted(project)
    call(deploy, earlier(project), "--override", "the incumbent")
    before = Path("deployed/model").resolve()
    other = earlier(project).resolve()

    async def swapped(self, place):
        return other

    monkeypatch.setattr(FolderDeployer, "read_back", swapped)
    with pytest.raises(DeployError, match="is not the one that was scored"):
        call(deploy, project, "--gate", gate, "--tolerance", "1e-12")
    assert Path("deployed/model").resolve() == before


def test_another_template_is_not_put_into_use(project, monkeypatch):
    gate = promoted(project)
    from evsys_runtime.rendering.chat import ChatTemplateRenderer

    render = ChatTemplateRenderer.render_prompt
    monkeypatch.setattr(
        ChatTemplateRenderer, "render_prompt", lambda self, *given: [*render(self, *given), 1]
    )
    with pytest.raises(DeployError, match="the chat template of the deployed model gives other prompts"):
        call(deploy, project, "--gate", gate)
    assert not Path("deployed/model").exists()


@pytest.fixture
def saved(tmp_path):
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "adapter.bin").write_bytes(b"weights")
    (folder / "optimizer.bin").write_bytes(b"moments")
    return Checkpoint(step=1, directory=folder)


def test_a_copy_is_made_once(saved, tmp_path):
    deployer = FolderDeployer(path=tmp_path / "to")
    first = asyncio.run(deployer.deploy(saved))
    inode = Path(first["path"], "adapter.bin").stat().st_ino
    assert asyncio.run(deployer.deploy(saved)) == first
    assert Path(first["path"], "adapter.bin").stat().st_ino == inode
    assert asyncio.run(deployer.active()) is None


def test_a_damaged_copy_is_refused(saved, tmp_path):
    deployer = FolderDeployer(path=tmp_path / "to")
    place = asyncio.run(deployer.deploy(saved))
    Path(place["path"], "adapter.bin").write_bytes(b"other")
    with pytest.raises(DeployError, match="isn't a copy of"):
        asyncio.run(deployer.deploy(saved))


def test_something_else_under_the_name_of_the_link_stays(saved, tmp_path):
    deployer = FolderDeployer(path=tmp_path / "to")
    place = asyncio.run(deployer.deploy(saved))
    (tmp_path / "to/model").mkdir()
    with pytest.raises(DeployError, match="is not a link"):
        asyncio.run(deployer.activate(place))


def test_a_checkpoint_without_files_is_refused(tmp_path):
    with pytest.raises(DeployError, match="has no weights"):
        asyncio.run(FolderDeployer(path=tmp_path).deploy(Checkpoint(step=1, directory=tmp_path / "nowhere")))


def test_a_copy_that_is_gone_is_named(saved, tmp_path):
    deployer = FolderDeployer(path=tmp_path / "to")
    place = asyncio.run(deployer.deploy(saved))
    shutil.rmtree(place["path"])
    with pytest.raises(DeployError, match="is gone"):
        asyncio.run(deployer.activate(place))


@given(st.text(min_size=1, max_size=20))
def test_a_name_is_a_folder_or_refused(name):
    if slug(name) == name:
        assert FolderDeployer(name=name).config.name == Path(name).name
    else:
        with pytest.raises(DeployError, match="is not a name of a folder"):
            FolderDeployer(name=name)


def test_a_digest_needs_the_folder(tmp_path):
    with pytest.raises(StoreError):
        checkpoint_digest(tmp_path / "nowhere")
