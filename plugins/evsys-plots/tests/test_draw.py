"""Plots of experiments that ran, on the mock backend."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from small_project import Project

from evsys.errors import StoreError
from evsys_plots import effects as effects_module
from evsys_plots.command import plot
from evsys_plots.draw import draw
from evsys_plots.listener import evsys_experiment_finished
from evsys_plots.material import material_of
from evsys_record.experiment_record import ExperimentRecord

ALL = {"cost", "differences", "effects", "scores-val", "training-loss", "training-metrics"}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """The result of an experiment with two repeats that drew its plots. Nothing is changed in its record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVSYS_PLOTS", "on")
        return Project(tmp_path_factory.mktemp("project")).experiment(extra="n_repeats: 2\n").run()


@pytest.fixture
def copied(drawn, tmp_path) -> Path:
    """A record that may be changed."""
    return shutil.copytree(drawn.directory, tmp_path / "experiments" / Path(drawn.directory).name)


def names(folder: Path, suffix: str = ".png") -> set[str]:
    return {path.stem for path in folder.glob(f"*{suffix}")}


def test_plots_are_written_beside_the_conclusion_which_links_them(drawn):
    folder = Path(drawn.directory)
    assert names(folder / "plots") == names(folder / "plots", ".svg") == ALL
    text = (folder / "conclusion.md").read_text(encoding="utf-8")
    assert "Plots: [cost](plots/cost.png), " in text
    assert all((folder / f"plots/{name}.png").read_bytes().startswith(b"\x89PNG") for name in ALL)
    assert not any("listener" in warning for warning in drawn.warnings)


def test_the_same_record_gives_the_same_bytes(drawn, tmp_path):
    folder = Path(drawn.directory)
    again = draw(folder, tmp_path / "again")
    assert {path.stem for path in again.files} == ALL
    for path in again.files:
        assert path.read_bytes() == (folder / "plots" / path.name).read_bytes()


def test_users_settings_of_matplotlib_change_nothing_and_are_left_alone(drawn, tmp_path):
    import matplotlib as mpl

    with mpl.rc_context({"lines.linewidth": 9.0, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        (path, *_) = (p for p in draw(Path(drawn.directory), tmp_path / "a").files if p.suffix == ".svg")
        assert mpl.rcParams["lines.linewidth"] == 9.0
    assert path.read_bytes() == (Path(drawn.directory) / "plots" / path.name).read_bytes()


def test_a_dry_run_draws_nothing(project, monkeypatch):
    monkeypatch.setenv("EVSYS_PLOTS", "on")
    folder = Path(project.experiment(dry=True).run().directory)
    assert not (folder / "plots").exists()
    assert draw(folder).files == ()


def test_where_it_is_turned_off_nothing_is_drawn(project):
    assert not (Path(project.experiment().run().directory) / "plots").exists()


def test_where_there_is_no_record_nothing_is_drawn(drawn, tmp_path, monkeypatch):
    monkeypatch.setenv("EVSYS_PLOTS", "on")
    asyncio.run(evsys_experiment_finished(attrs.evolve(drawn, directory=str(tmp_path))))
    assert list(tmp_path.iterdir()) == []


def test_a_plot_that_fails_is_a_warning_and_the_others_are_there(project, monkeypatch):
    def broken(_material):
        raise ZeroDivisionError("no paper")

    broken.__name__ = "effects"
    monkeypatch.setenv("EVSYS_PLOTS", "on")
    monkeypatch.setattr(effects_module, "effects", broken)
    result = project.experiment().run()
    assert (result.status, result.exit_code) == ("completed", 0)
    assert names(Path(result.directory) / "plots") == ALL - {"effects"}
    (warning,) = (warning for warning in result.warnings if "listener" in warning)
    assert "these plots couldn't be drawn: effects: ZeroDivisionError: no paper" in warning


def test_a_folder_that_cannot_be_written_is_a_warning(project, monkeypatch):
    monkeypatch.setenv("EVSYS_PLOTS", "on")
    monkeypatch.setattr("evsys_record.reader.PLOTS", "config.yaml/plots")
    result = project.experiment().run()
    assert result.status == "completed"
    assert any("failed in evsys_experiment_finished" in warning for warning in result.warnings)


def test_the_command_draws_a_record_into_a_folder_of_ones_own(drawn, tmp_path):
    done = CliRunner().invoke(plot, [drawn.directory, "--out", str(tmp_path / "mine"), "--json"])
    document = json.loads(done.stdout)
    assert {Path(path).parent for path in document["files"]} == {tmp_path / "mine"}
    assert document["problems"] == []


def test_the_command_finds_an_experiment_by_what_people_call_it(drawn, monkeypatch):
    monkeypatch.chdir(Path(drawn.directory).parents[2])
    for name in ("last", "-1", Path(drawn.directory).name, "trial"):
        done = CliRunner().invoke(plot, [name])
        assert done.output.splitlines()[0].endswith("effects.png")


def test_the_command_finds_an_experiment_of_another_project(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for records in (Path(drawn.directory).parents[2], Path(drawn.directory).parent):
        done = CliRunner().invoke(plot, ["last", "--records", str(records)])
        assert done.output.splitlines()[0].startswith(drawn.directory)
    done = CliRunner().invoke(plot, ["last", "--records", "absent"])
    assert (done.exit_code, "absent is not a folder" in done.output) == (2, True)


def test_an_experiment_that_has_not_ended_shows_what_there_is(copied, tmp_path):
    folder = copied
    facts = json.loads((folder / "experiment.json").read_text(encoding="utf-8"))
    facts |= {"status": "running", "finished": None}
    (folder / "experiment.json").write_text(json.dumps(facts), encoding="utf-8")
    for path in folder.glob("runs/*/run_result.json"):
        path.unlink()
    assert names_of(draw(folder, tmp_path / "out")) == {"scores-val", "training-loss", "training-metrics"}


def names_of(drawn) -> set[str]:
    return {path.stem for path in drawn.files}


def test_runs_are_read_with_their_repeats_and_stages(drawn):
    material = material_of(Path(drawn.directory))
    assert [(run.arm, run.repeat, run.stage) for run in material.runs] == [("run", 0, ""), ("run", 1, "")]
    assert material.success == ("val", "mean_reward")
    assert [line.label for line in material.lines] == ["run"]


def test_what_was_drawn_before_is_set_aside_when_an_experiment_goes_on(copied):
    record = ExperimentRecord.open(copied)
    with record.lock:
        record.reopen()
    assert record.plots() == []
    assert names(record.directory / "plots.1") == ALL


def test_the_listener_imports_nothing_heavy():
    code = "import sys, evsys_plots.listener; print(sorted({'matplotlib', 'numpy'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_plots_are_not_written_through_a_link_in_a_record(copied, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.rmtree(copied / "plots", ignore_errors=True)
    (copied / "plots").symlink_to(outside)
    with pytest.raises(StoreError, match="plots is a symbolic link to .*outside the record"):
        draw(copied)
    assert not any(outside.iterdir())
    assert draw(copied, tmp_path / "asked").files
