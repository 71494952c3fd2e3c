"""Disks that are full, folders that can't be written, files in the way, two processes at once, and secrets on the disk."""

from __future__ import annotations

import builtins
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECRET = "cAnArY-7f3a9b2c1d-Sk"
LISTENER = """\
import attrs
from evsys_sdk import register_callback

@register_callback("service")
class Service:
    @attrs.frozen(kw_only=True)
    class Config:
        api_key: str = ""
        address: str = ""
        n: int = 1

    def __init__(self, **kw):
        self.kw = kw

    def evsys_step_finished(self, ctx, step):
        headers = {"Authorization": f"Bearer {self.kw['api_key']}"}
        ctx.log.info("sent", key=self.kw["api_key"], headers=headers, address=self.kw["address"])
        ctx.warn(f"slow answer of {self.kw['address']}")
        raise RuntimeError(f"401 for {self.kw['api_key']} at {self.kw['address']}")
"""


# --- where records go --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        (
            "in_the_way",
            r"\$\.output_dir: in_the_way can't be made: in_the_way is a file; name another folder",
        ),
        ("in_the_way/a/b", r"in_the_way/a/b can't be made: in_the_way is a file"),
        ("loop", r"loop can't be made: loop is a symbolic link that leads nowhere"),
        ("''", r"'' is not a usable path"),
        ('"a\\0b"', r"is not a usable path; name a folder, without control characters"),
        ("x" * 300, r"is not a usable path: File name too long"),
        ("${HOME_FOLDER}", r"environment variables are put in plugin params only, not in paths"),
        ("5", r'\$\.output_dir: expected text, got 5; write it in quotes: "5"'),
    ],
)
def test_a_folder_for_records_that_can_not_be_is_a_problem_of_the_file(lab, folder, said):
    lab.write("in_the_way", "x")
    (lab.root / "loop").symlink_to("loop")
    lab.config(also=f"output_dir: {folder}\n")
    lab.run().refused(2, said)
    lab.nothing_was_written()


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        (".evsys", 2, r"\.evsys/experiments can't be made: \.evsys is a file"),
        (".evsys/experiments", 2, r"\.evsys/experiments is a file"),
        (".evsys/cache", 1, r"can't create folder \.evsys/cache/datasets: Not a directory" ),
    ],
)  # fmt: skip
def test_a_file_in_the_way_of_the_projects_folder_is_named(lab, name, code, said):
    lab.write(name, "x")
    lab.run().refused(code, said)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no folder that nobody can write to")
def test_a_folder_that_nobody_can_write_to_is_told_with_its_path(lab):
    lab.config(also="output_dir: /proc/self/records\n")
    lab.run().refused(
        2,
        r"\$\.output_dir: /proc/self/records can't be written: /proc/self is read-only; name another folder",
    )


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_read_only_project_is_a_problem_of_the_file_and_unreadable_files_too(lab):
    (lab.root / "train.jsonl").chmod(0)
    lab.run().refused(2, r"train\.jsonl can't be read; check its permissions")
    (lab.root / "train.jsonl").chmod(0o600)
    (lab.root / "config.yaml").chmod(0)
    lab.run().refused(2, r"config\.yaml: can't be read: Permission denied; check its permissions")
    (lab.root / "config.yaml").chmod(0o600)
    lab.root.chmod(0o500)
    try:
        lab.run().refused(
            2, r"\$\.output_dir: .* is read-only; name another folder, or change its permissions"
        )
    finally:
        lab.root.chmod(0o700)


def test_permissions_that_the_system_denies_are_told(lab, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    lab.run().refused(
        2, r"train\.jsonl can't be read; check its permissions", r"\$\.output_dir: .* is read-only"
    )


@pytest.fixture
def read_only(lab, monkeypatch, tmp_path_factory):
    """The project can be read and not written, whoever asks."""
    rows = (lab.root / "train.jsonl").read_bytes()
    lab.write("data/datasets/words/v1/train.jsonl", rows)
    real, access = Path.mkdir, os.access

    def refuse(path, *arguments, **options):
        if lab.root in path.absolute().parents and not path.is_dir():
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        real(path, *arguments, **options)

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: access(path, mode) and not (mode & os.W_OK and Path(path) == lab.root),
    )
    monkeypatch.setenv("EVSYS_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_rows_of_a_read_only_project_can_be_looked_at(lab, read_only):
    lab.config(("path: train.jsonl", "dataset_name: words"))
    lab.run().refused(2, r"\$\.output_dir: .* is read-only")
    outcome = lab.evsys("data", "preview", "config.yaml", "-n", "2")
    outcome.passed()
    assert outcome.out.count("--- row") == 2
    lab.nothing_was_written()


def test_a_read_only_project_is_run_with_records_elsewhere_and_says_where_its_data_is_kept(
    lab, read_only, tmp_path_factory
):
    records = tmp_path_factory.mktemp("records")
    lab.config(also=f"output_dir: {records}\n")
    outcome = lab.run("--json")
    outcome.passed()
    lab.nothing_was_written()
    (warning,) = [line for line in outcome.json["warnings"] if "can't be written" in line]
    kept = Path(warning.partition("data is kept in ")[2].removesuffix(" instead"))
    (rows,) = kept.glob("datasets/*/rows.jsonl")
    (recorded,) = records.glob("*/runs/*/data/training_data.jsonl")
    assert recorded.samefile(rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("init-project", "train.jsonl"), r"train\.jsonl is a file; choose another name"),
        (
            ("init-project", "train.jsonl/x"),
            r"can't write train\.jsonl/x/.*: Not a directory; a file is in the way",
        ),
        (("init-project", "x" * 300), r"can't write x+/.*: File name too long; use shorter names"),
        (("init-project", ""), r"'' is not a valid folder name"),
        (("init-project", "a\0b"), r"is not a valid folder name"),
        (("new-experiment", ""), r"SLUG is empty"),
        (("new-experiment", "first"), r"can't write experiments/.*: Not a directory"),
    ],
)
def test_scaffolds_that_can_not_be_written_say_why(lab, arguments, said):
    lab.write("pyproject.toml", "[tool.evsys]\n")
    lab.write("experiments", "a file where a folder should go")
    before = sorted(path.name for path in lab.root.iterdir())
    outcome = lab.evsys(*arguments)
    outcome.refused(outcome.code, said)
    assert outcome.code in {1, 2}
    assert sorted(path.name for path in lab.root.iterdir()) == before


# --- no space ----------------------------------------------------------------------------------------------------------


class Disk:
    """A disk with so many bytes left for what this process writes below a folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.monkeypatch = monkeypatch
        self.write, self.open = os.write, builtins.open

    def fill(self) -> None:
        self.monkeypatch.setattr(os, "write", self.limited)

    def limited(self, descriptor: int, data: bytes) -> int:
        if descriptor > 2:
            if len(data) > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
        return self.write(descriptor, data)


@pytest.mark.parametrize("room", [0, 500, 3_000, 8_000, 15_000])
def test_a_disk_that_fills_up_ends_with_1_and_what_to_do_wherever_it_happens(lab, monkeypatch, room):
    Disk(monkeypatch, room).fill()
    lab.run().refused(1, r"No space left on device", r"free some space")
    monkeypatch.undo()
    for path in lab.files():
        if path.suffix == ".json":
            json.loads(path.read_text(encoding="utf-8"))
        assert not path.name.endswith(".tmp"), path


@pytest.mark.skipif(os.name == "nt", reason="no limit on file sizes")
def test_a_checkpoint_that_does_not_fit_leaves_none_and_keeps_the_record(lab):
    import resource

    limit = 100_000
    lab.config((", lora_rank: 4", ", lora_rank: 32"))
    outcome = lab.process(
        "run",
        "config.yaml",
        "--quiet",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    outcome.refused(1, r"can't save a checkpoint in \.evsys/.*: File too large", r"`ulimit -f`")
    assert lab.facts()["status"] == "failed"
    assert not list(lab.record().glob("runs/*/checkpoints/*"))
    lab.nothing_is_half_written()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [("list",), ("list", "--json")])
def test_an_output_that_can_not_be_written_is_told_in_one_line(lab, arguments):
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evsys_cli.main", *arguments],
            cwd=lab.root, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "The output can't be written: [Errno 28] No space left on device\n"


def test_a_reader_that_goes_away_is_no_fault(lab):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "evsys_cli.main", "schema", "--experiment"],
        cwd=lab.root, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 1


# --- two at once -------------------------------------------------------------------------------------------------------


def test_two_processes_on_one_project_do_not_meet(lab):
    command = [sys.executable, "-m", "evsys_cli.main", "run", "config.yaml", "--json", "--full", "--quiet"]
    started = [subprocess.Popen(command, cwd=lab.root, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    results = [
        json.loads(process.communicate(timeout=60)[0].splitlines()[-1])["result"] for process in started
    ]
    assert [process.returncode for process in started] == [0, 0]
    assert [result["status"] for result in results] == ["completed", "completed"]
    assert len({result["directory"] for result in results}) == 2
    assert len({json.dumps(result["arms"][0]["evaluations"][-1]["metrics"]) for result in results}) == 1
    lab.nothing_is_half_written()


# --- secrets -----------------------------------------------------------------------------------------------------------


def leaks(lab) -> list[str]:
    """Files of the whole project, other than the experiment's own, in which the secret stands."""
    return [
        str(path.relative_to(lab.root)) for path in lab.files(".") if SECRET.encode() in path.read_bytes()
    ]


@pytest.mark.parametrize("name", ["SERVICE_API_KEY", "A_HARMLESS_NAME"])
def test_a_secret_of_the_environment_is_in_no_file_and_no_document(lab, monkeypatch, name):
    monkeypatch.setenv(name, SECRET)
    lab.code(LISTENER)
    params = f"{{api_key: '${{{name}}}', address: 'https://user:${{{name}}}@example.com/v1?key=${{{name}}}'}}"
    lab.config(("run:", f"callbacks: [{{kind: service, params: {params}}}]\nrun:"))
    outcome = lab.run("--json")
    outcome.passed()
    assert any("401 for [redacted]" in warning for warning in outcome.json["warnings"])
    assert SECRET not in outcome.said
    assert leaks(lab) == []
    assert f"${{{name}}}" in (lab.record() / "config.yaml").read_text(encoding="utf-8")
    assert SECRET not in lab.run().said


def test_a_secret_in_a_failure_is_in_no_file_and_no_document(lab, monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", SECRET)
    lab.code(
        "import os\nfrom evsys_sdk import SFT, register_algorithm\n\n@register_algorithm('odd')\nclass Odd(SFT):\n"
        "    async def build_batch(self, step_idx):\n        raise OSError('401 for ' + os.environ['SERVICE_TOKEN'])\n"
    )
    lab.config(("kind: sft", "kind: odd"))
    outcome = lab.run("--json")
    assert outcome.code == 1
    assert outcome.json["arms"][0]["failure"]["message"].endswith("OSError: 401 for [redacted]")
    assert SECRET not in outcome.said
    assert leaks(lab) == []


def test_rows_in_which_a_transform_put_a_secret_are_refused(lab, monkeypatch):
    monkeypatch.setenv("SERVICE_PASSWORD", SECRET)
    lab.code(
        "import attrs\nfrom evsys_sdk import register_transform\n\n@register_transform('odd')\nclass Odd:\n"
        "    @attrs.frozen(kw_only=True)\n    class Config:\n        password: str\n    def __init__(self, password):\n"
        "        self.password = password\n    def __call__(self, rows):\n        for row in rows:\n"
        "            yield {**row, 'fetched_with': self.password}\n"
    )
    lab.config(
        (
            "[{kind: jsonl_to_chat}]",
            "[{kind: odd, params: {password: '${SERVICE_PASSWORD}'}}, {kind: jsonl_to_chat}]",
        )
    )
    outcome = lab.run()
    outcome.refused(4, r"row 0 holds the value of SERVICE_PASSWORD, and the record keeps the rows")
    assert SECRET not in outcome.said
    assert leaks(lab) == []


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ("{n: '${SERVICE_API_KEY}'}", r"\.params\.n: expected an integer, got '\$\{SERVICE_API_KEY\}'; .* it isn't shown here"),
        ("{nn: '${SERVICE_API_KEY}'}", r"\.params\.nn: unknown key 'nn'"),
        ("{api_key: '${NOT_SET_ANYWHERE}'}", r"the environment variable NOT_SET_ANYWHERE isn't set; export NOT_SET_ANYWHERE="),
    ],
)  # fmt: skip
def test_a_problem_with_a_secret_value_does_not_show_it(lab, monkeypatch, params, said):
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    lab.code(LISTENER)
    lab.config(("run:", f"callbacks: [{{kind: service, params: {params}}}]\nrun:"))
    outcome = lab.run("--json")
    outcome.refused(2, said)
    assert SECRET not in outcome.said


def test_a_secret_written_into_the_file_is_refused_and_one_given_by_set_is_not_kept(lab, monkeypatch):
    lab.code(LISTENER)
    lab.config(("run:", "callbacks: [{kind: service, params: {api_key: x}}]\nrun:"))
    lab.run("--set", f"callbacks[0].params.api_key={SECRET}").passed()
    assert leaks(lab) == []
    assert lab.facts()["overrides"] == ["callbacks[0].params.api_key=[redacted]"]
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    lab.config(("run:", f"callbacks: [{{kind: service, params: {{api_key: {SECRET}}}}}]\nrun:"))
    outcome = lab.run()
    outcome.refused(
        2,
        r":5:47: \$\.callbacks\[0\]\.params\.api_key: the value of the environment variable SERVICE_API_KEY occurs here",
        r"write \$\{SERVICE_API_KEY\} instead",
    )
    assert SECRET not in outcome.said


@pytest.mark.parametrize("command", ["run", "validate"])
@pytest.mark.parametrize(
    ("option", "said"),
    [
        (f"metadata.hypothesis=because of {SECRET}", r"--set metadata\.hypothesis: "),
        (f"name=trial-{SECRET}", r"--set name: "),
        (f"metadata.tags=[a, {SECRET}]", r"--set metadata\.tags: "),
        (f"description={SECRET}", r"--set description: "),
        (f"run.name={SECRET}", r"--set run\.name: "),
        (f"callbacks[0].params.address=https://me:{SECRET}@example.com", r"--set callbacks\[0\]\.params\.address: "),
        ('metadata={hypothesis: "\\x63AnArY-7f3a9b2c1d-Sk"}', r"--set metadata: "),
    ],
)  # fmt: skip
def test_a_secret_given_by_set_in_any_text_that_is_kept_is_refused_by_the_options_name(
    lab, monkeypatch, command, option, said
):
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    lab.code(LISTENER)
    lab.config(("run:", "callbacks: [{kind: service, params: {address: x}}]\nrun:"))
    outcome = lab.evsys(command, "config.yaml", "--set", option)
    outcome.refused(2, said + "the value of the environment variable SERVICE_API_KEY occurs here")
    assert SECRET not in outcome.said
    lab.nothing_was_written()


def test_secrets_in_the_file_are_told_at_once_with_line_and_key_comments_and_escapes_included(
    lab, monkeypatch
):
    monkeypatch.setenv("SERVICE_API_KEY", SECRET)
    monkeypatch.setenv("OTHER_TOKEN", "a123456789abcdefgh")
    lab.config(
        ("name: trial", f"# once {SECRET}\nname: trial"),
        ("metadata:", 'description: "\\x61123456789abcdefgh"\nmetadata:\n  hypothesis: |\n    so\n' + f"    {SECRET}"),
    )  # fmt: skip
    outcome = lab.validate()
    outcome.refused(
        2,
        "3 problems:",
        r"config\.yaml:2:8: the value of the environment variable SERVICE_API_KEY occurs here",
        r"config\.yaml:4:1: \$\.description: the value of the environment variable OTHER_TOKEN occurs here",
        r"config\.yaml:8:5: \$\.metadata\.hypothesis: the value of the environment variable SERVICE_API_KEY",
    )
    assert SECRET not in outcome.said


def test_what_looks_like_a_secret_under_the_name_of_one_is_refused_in_the_file(lab):
    lab.code(LISTENER)
    lab.config(("run:", "callbacks: [{kind: service, params: {api_key: sk-0123456789abcdef}}]\nrun:"))
    lab.run().refused(
        2, r":5:38: .*api_key: this looks like a secret, .* write \$\{API_KEY\} and export API_KEY"
    )
    lab.nothing_was_written()


@pytest.mark.parametrize(
    "address", ["http://user:hunter2pw@127.0.0.1:9/v1", "http://127.0.0.1:9/v1?token=abcdef123456"]
)
def test_an_address_with_a_password_or_a_token_is_refused(lab, address):
    lab.code(LISTENER)
    lab.config(("run:", f"callbacks: [{{kind: service, params: {{address: '{address}'}}}}]\nrun:"))
    lab.run().refused(
        2, r":5:38: .*address: this looks like a secret, .* write \$\{ADDRESS\} and export ADDRESS"
    )
    lab.nothing_was_written()


def test_a_key_that_begins_like_those_of_a_service_is_refused_wherever_the_file_or_an_option_has_it(lab):
    key = "hf_" + "aB3" * 12
    lab.config(
        ("name: trial", f"# once {key}\nname: trial"),
        ("metadata:", f"description: made with {key}\nmetadata:"),
    )
    outcome = lab.run("--set", f"metadata.hypothesis=see {key}")
    outcome.refused(
        2,
        "3 problems:",
        r"config\.yaml:2:8: this looks like a secret, and the record keeps this text; remove it",
        r"config\.yaml:\d+:\d+: \$\.description: this looks like a secret, .* export API_KEY",
        r"--set metadata\.hypothesis: this looks like a secret, .* leave it out here",
    )
    assert key not in outcome.said
    lab.nothing_was_written()


def test_a_mapping_given_by_set_is_kept_without_the_secrets_in_it(lab):
    lab.code(LISTENER)
    lab.config(("run:", "callbacks: [{kind: service, params: {n: 1}}]\nrun:"))
    outcome = lab.run("--set", f"callbacks[0].params={{api_key: {SECRET}, n: 2}}", "--json")
    outcome.passed()
    assert SECRET not in outcome.said
    assert leaks(lab) == []
    assert lab.facts()["overrides"] == ['callbacks[0].params={"api_key": "[redacted]", "n": 2}']


def test_a_short_secret_is_taken_out_of_the_hypothesis_of_the_experiment_and_of_its_runs(lab, monkeypatch):
    monkeypatch.setenv("SERVICE_PASSWORD", "hunter-two")
    lab.run("--set", "metadata.hypothesis=with hunter-two").passed()
    texts = [path.read_text(encoding="utf-8") for path in lab.files() if path.name == "hypothesis.md"]
    assert texts == ["with [redacted]\n"] * 2
