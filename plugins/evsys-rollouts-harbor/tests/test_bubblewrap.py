"""The sandbox: what is inside, what can get out, and what is left of it."""

import asyncio
import os
import socket
import uuid

import pytest
from rollout_parts import until
from sandboxes import needs_sandbox, running

from evsys.errors import ConfigError, RolloutError
from evsys_rollouts_harbor import disk_use, namespaces
from evsys_rollouts_harbor.bubblewrap import HOME, BwrapEnvironment, Execution
from evsys_rollouts_harbor.namespaces import remove_tree

pytestmark = needs_sandbox


def inside(*commands: str, **params) -> list[Execution]:
    async def main() -> list[Execution]:
        sandbox = BwrapEnvironment(**params)
        try:
            await sandbox.start()
            return [await sandbox.exec(command) for command in commands]
        finally:
            await sandbox.stop()

    return asyncio.run(main())


async def with_sandbox(use, **params):
    sandbox = BwrapEnvironment(**params)
    try:
        await sandbox.start()
        return await use(sandbox)
    finally:
        await sandbox.stop()


def test_commands_have_outputs_and_exit_codes(scratch):
    assert inside("echo out; echo err >&2; exit 7") == [
        Execution(stdout="out\n", stderr="err\n", return_code=7)
    ]


def test_what_one_command_leaves_is_there_for_the_next(scratch):
    first, second = inside("echo kept > /app/file; sleep 100 & echo $!", "cat /app/file; kill -0 3 2>/dev/null; ps -e -o args= | grep -c '^sleep 100'")  # fmt: skip
    assert first.return_code == 0
    assert second.stdout.splitlines() == ["kept", "1"]


def test_nothing_of_the_machine_can_be_written(scratch):
    commands = (
        "touch /usr/x",
        "echo x > /proc/sys/kernel/core_pattern",
        "mount -t tmpfs none /usr",
        "umount /usr",
    )
    assert all(done.return_code for done in inside(*commands))


def test_a_command_has_no_capabilities_and_gains_none(scratch):
    [done] = inside("grep -E 'CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs' /proc/self/status")
    values = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert {int(value, 16) for value in values.values()} == {0}
    assert len(values) == 4


def test_the_machines_folders_cannot_be_seen(scratch, tmp_path):
    (tmp_path / "own.txt").write_text("mine", encoding="utf-8")
    done = inside(
        f"cat {tmp_path}/own.txt",
        "cat /etc/shadow",
        "ls ~ /home /opt",
        "ls -d /proc/[0-9]* | wc -l",
        f"ls {tmp_path} 2>/dev/null",
    )
    assert [one.return_code for one in done[:2]] == [1, 1]
    assert sorted(done[2].stdout.split()) == sorted([f"{HOME}:", "/home:", "/opt:"])
    assert int(done[3].stdout) < 8  # only the sandbox's own processes
    assert done[4].stdout == ""


def test_folders_that_are_named_can_be_read_and_not_written(scratch, tmp_path):
    (tmp_path / "own.txt").write_text("mine", encoding="utf-8")
    read, write = inside(f"cat {tmp_path}/own.txt", f"touch {tmp_path}/x", mounts=[str(tmp_path)])
    assert read.stdout == "mine"
    assert write.return_code != 0


@pytest.mark.parametrize("mounts", [["relative"], ["/no/such/folder"]])
def test_folders_that_cannot_be_shown_are_refused(mounts):
    with pytest.raises(ConfigError, match=r"mounts\[0\]"):
        BwrapEnvironment(mounts=mounts)


def test_without_a_network_there_is_a_loopback_that_commands_share(scratch):
    serve = "python3 -m http.server 8000 >/dev/null 2>&1 & sleep 0.1; echo"
    ask = "for i in 1 2 3 4 5 6 7 8 9 10; do (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null && echo open && exit; sleep 0.2; done"
    devices, _, asked = inside(
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", serve, ask, network=False
    )
    assert devices.stdout.split() == ["lo"]
    assert asked.stdout == "open\n"


def test_variables_of_a_command_are_not_shown_in_lists_of_processes(scratch):
    secret = f"secret-{uuid.uuid4()}"

    async def use(sandbox):
        asking = asyncio.create_task(sandbox.exec("sleep 0.3; echo $KEY", env={"KEY": secret}))
        await until(lambda: running("sleep 0.3"))
        seen = running(secret)
        return seen, (await asking).stdout.strip()

    assert asyncio.run(with_sandbox(use)) == ([], secret)


def test_a_command_that_takes_too_long_is_killed_with_its_children(scratch):
    mark = f"3{uuid.uuid4().int % 10**9}"

    async def use(sandbox):
        with pytest.raises(TimeoutError):
            await sandbox.exec(f"sleep {mark} & sleep {mark}", timeout_seconds=0.2)
        return await sandbox.exec("echo still here")

    assert asyncio.run(with_sandbox(use)).stdout == "still here\n"
    assert running(f"sleep {mark}") == []


def test_stopping_ends_daemons_and_removes_whatever_was_made(scratch):
    mark = f"3{uuid.uuid4().int % 10**9}"
    inside(
        f"setsid sleep {mark} >/dev/null 2>&1 & mkdir -p /app/a/b; touch /app/a/b/c; chmod 000 /app/a/b /app/a"
    )
    assert running(f"sleep {mark}") == []
    assert running(str(scratch)) == []


def test_stopping_kills_at_once_what_is_inside(scratch, monkeypatch):
    monkeypatch.setattr(namespaces, "_KILL_SECONDS", 3600)

    async def main():
        sandbox = BwrapEnvironment()
        await sandbox.start()
        await asyncio.wait_for(sandbox.stop(), 20)

    asyncio.run(main())


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 6, 200])  # of the event loop, until it is cancelled
def test_a_cancelled_start_ends_and_leaves_nothing_once_stopped(scratch, monkeypatch, turns):
    monkeypatch.setattr(namespaces, "_KILL_SECONDS", 3600)

    async def main():
        sandbox = BwrapEnvironment()
        starting = asyncio.create_task(sandbox.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        there = str(sandbox._there)
        starting.cancel()
        await asyncio.wait([starting], timeout=20)
        assert starting.done()  # cancelled, unless it was quicker
        await asyncio.wait_for(sandbox.stop(), 20)
        return there

    for _ in range(3):  # what the kernel does meanwhile differs
        assert running(asyncio.run(main())) == []


def test_cancelling_a_command_ends_it(scratch):
    mark = f"3{uuid.uuid4().int % 10**9}"

    async def use(sandbox):
        asking = asyncio.create_task(sandbox.exec(f"sleep {mark}"))
        await until(lambda: running(f"sleep {mark}"))
        asking.cancel()
        await asyncio.wait([asking])
        await until(lambda: not running(f"sleep {mark}"))  # the kernel takes its time to clear it away
        return asking.cancelled()

    assert asyncio.run(with_sandbox(use))


def test_files_go_in_and_come_out(scratch, tmp_path):
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("a", encoding="utf-8")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n", encoding="utf-8")
    (source / "run.sh").chmod(0o755)

    async def use(sandbox):
        await sandbox.put(source, "/tests")
        await sandbox.put(source / "run.sh", "/new/place/other.sh")
        said = await sandbox.exec(
            "cat /tests/deep/a.txt; /new/place/other.sh; echo made > /logs/agent/out.txt"
        )
        await sandbox.get("/logs/agent", tmp_path / "logs")
        await sandbox.get("/tests/deep/a.txt", tmp_path / "one.txt")
        with pytest.raises(FileNotFoundError, match="/no/such"):
            await sandbox.get("/no/such", tmp_path / "none")
        return said.stdout

    assert asyncio.run(with_sandbox(use)) == "aran\n"
    assert (tmp_path / "logs" / "out.txt").read_text(encoding="utf-8") == "made\n"
    assert (tmp_path / "one.txt").read_text(encoding="utf-8") == "a"


def test_an_agent_can_lead_copies_nowhere_outside(scratch, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "file.txt").write_text("new", encoding="utf-8")

    async def use(sandbox):
        await sandbox.exec(
            f"ln -s {outside} /app/link; ln -s {outside}/secret.txt /logs/agent/stolen; ln -s ../../../x /logs/agent/up; "
            "mkfifo /logs/agent/pipe; echo fine > /logs/agent/fine"
        )
        with pytest.raises((RolloutError, FileNotFoundError)):
            await sandbox.get(f"{outside}/secret.txt", tmp_path / "stolen")
        with pytest.raises((RolloutError, FileNotFoundError)):
            await sandbox.get("/app/link/secret.txt", tmp_path / "stolen")
        await sandbox.exec(f"mkdir -p {outside}")
        await sandbox.put(tmp_path / "file.txt", "/app/link/secret.txt")
        await sandbox.get("/logs/agent", tmp_path / "logs")

    asyncio.run(with_sandbox(use))
    assert (outside / "secret.txt").read_text(encoding="utf-8") == "secret"
    assert sorted(entry.name for entry in (tmp_path / "logs").iterdir()) == ["fine"]
    assert not (tmp_path / "stolen").exists()


def test_output_without_end_is_cut(scratch, monkeypatch):
    from evsys_rollouts_harbor import bubblewrap

    monkeypatch.setattr(bubblewrap, "_MOST_OUTPUT", 10)
    [done] = inside("printf 0123456789abc")
    assert done.stdout == "0123456789\n[3 more bytes left out]"


def test_what_is_not_started_says_so():
    async def main():
        with pytest.raises(RolloutError, match="isn't started"):
            await BwrapEnvironment().exec("true")

    asyncio.run(main())


def test_a_machine_that_forbids_sandboxes_is_named(scratch, monkeypatch, tmp_path):
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "bwrap").write_text(
        "#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n", encoding="utf-8"
    )
    (fake / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")

    async def main():
        sandbox = BwrapEnvironment()
        try:
            with pytest.raises(
                RolloutError, match="No permissions to create new namespace; it needs user namespaces"
            ):
                await sandbox.start()
        finally:
            await sandbox.stop()

    asyncio.run(main())


def test_a_tree_without_permissions_is_removed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b").chmod(0)
    (tmp_path / "a").chmod(0)
    remove_tree(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_nothing_of_the_agent_lives_or_can_write_rewards_while_the_verifier_runs(scratch, tmp_path):
    forger = (
        "mkdir -p /tests /logs/verifier; echo planted > /tests/planted; echo /x.so > /etc/ld.so.preload; "
        "(while true; do echo 1 > /logs/verifier/reward.txt; done) >/dev/null 2>&1 & "
        "setsid sh -c 'exec 9>/logs/verifier/held; while true; do echo 1 >&9; done' >/dev/null 2>&1 &"
    )

    async def use(sandbox):
        await sandbox.exec(forger)
        await sandbox.begin_verification()
        seen = await sandbox.exec(
            "ls -A /tests /logs/verifier; cat /etc/ld.so.preload; ps -e -o args= | grep -c '[w]hile true'"
        )
        await sandbox.exec("echo 0 > /logs/verifier/reward.txt")
        await sandbox.get("/logs/verifier", tmp_path / "rewards")
        sandbox.begin_acting()
        after = await sandbox.exec("ls /tests; cat /app/kept 2>/dev/null")
        return seen.stdout.split(), after.stdout.split()

    seen, after = asyncio.run(with_sandbox(use))
    assert seen == ["/logs/verifier:", "/tests:", "0"]
    assert {path.name: path.read_text() for path in (tmp_path / "rewards").iterdir()} == {"reward.txt": "0\n"}
    assert after == ["planted"]


@pytest.mark.parametrize("place", ["/tests", "/logs", "/logs/verifier", "/etc", "/etc/ssl", "/bin", "/lib64"])
@pytest.mark.parametrize("namespace", ["", "unshare --user --mount "])
def test_what_is_mounted_and_the_folders_above_can_not_be_replaced(scratch, tmp_path, place, namespace):
    (tmp_path / "outside").mkdir()
    leading = f"/oldroot{tmp_path}/outside"  # where bubblewrap has this machine's root while it mounts
    take = f"umount -l {place}; mv {place} /away || rmdir {place}; ln -sT {leading} {place} || ln -sfT {leading} {place}"

    async def use(sandbox):
        done = await sandbox.exec(f"{namespace}sh -c '{take}'")
        await sandbox.begin_verification()
        return done.return_code, (await sandbox.exec("ls -A /tests /logs/verifier")).stdout.split()

    code, seen = asyncio.run(with_sandbox(use))
    assert (code != 0, seen) == (True, ["/logs/verifier:", "/tests:"])
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("plant", ["/tests/conftest.py", "/etc/ld.so.preload"])
def test_a_verifier_has_nothing_that_an_agent_planted_through_a_symlink(scratch, plant):
    folder, name = plant.rsplit("/", 1)
    forge = f"mkdir -p /newroot/x; echo planted > /newroot/x/{name}; rm -rf {folder}/{name}; rmdir {folder}; "
    forge += f"ln -s /newroot/x {folder}; ln -s /newroot/x/{name} {folder}/"

    async def use(sandbox):
        await sandbox.exec(forge)
        await sandbox.begin_verification()
        return (await sandbox.exec(f"cat {plant}")).stdout

    assert asyncio.run(with_sandbox(use)) == ""


@pytest.mark.parametrize("program", ["/bin/sh", "/bin/bash", "/sbin/ldconfig", "/lib64/ld-linux-x86-64.so.2"])
def test_an_agent_can_not_replace_the_programs_that_a_verifier_runs(scratch, program):
    forge = (
        f"rm {program}; folder=$(dirname {program}); rm $folder; mkdir $folder; echo forged > {program}; true"
    )
    _, done = inside(forge, f"test ! -e {program} || ! grep -q forged {program} && echo fine")
    assert done.stdout == "fine\n"


PLANT = """
python3 - <<'END'
import pathlib, site, sys
version = "python%d.%d" % sys.version_info[:2]
for folder in (site.getusersitepackages(), f"/etc/{version}"):
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        pathlib.Path(folder, "evil.pth").write_text("import sys; print('forged')\\n")
        pathlib.Path(folder, "sitecustomize.py").write_text("print('forged')\\n")
    except OSError:
        pass
END
"""


@pytest.mark.parametrize(("params", "said"), [({}, "fine"), ({"keep_user_site": True}, "forged")])
def test_code_that_an_agent_left_for_every_python_runs_in_no_verifier(scratch, params, said):
    async def use(sandbox):
        await sandbox.exec(PLANT)
        await sandbox.begin_verification()
        return await sandbox.exec("python3 -c \"print('fine')\"")

    assert asyncio.run(with_sandbox(use, **params)).stdout.split()[0] == said


def test_a_folder_above_one_that_is_shown_can_not_be_replaced(scratch, tmp_path):
    shown = tmp_path / "data" / "set"
    shown.mkdir(parents=True)
    (shown / "own.txt").write_text("mine", encoding="utf-8")
    take, read = inside(f"mv {shown.parent} /away", f"cat {shown}/own.txt", mounts=[str(shown)])
    assert (take.return_code != 0, read.stdout) == (True, "mine")


def test_a_task_about_a_service_can_keep_it_while_the_verifier_runs(scratch):
    async def use(sandbox):
        await sandbox.exec("sleep 100 & echo kept > /app/kept")
        await sandbox.begin_verification()
        return await sandbox.exec("cat /app/kept; ps -e -o args= | grep -c '^sleep 100'")

    assert asyncio.run(with_sandbox(use, keep_processes=True)).stdout.split() == ["kept", "1"]


@pytest.mark.parametrize(
    "command", ["truncate -s 3G /logs/agent/large", "head -c 3M /dev/zero > /logs/agent/large"]
)
def test_what_is_copied_out_is_bounded_and_holes_cost_nothing(scratch, tmp_path, command):
    async def use(sandbox):
        assert (await sandbox.exec(command)).return_code == 0
        with pytest.raises(
            RolloutError, match=r"/logs/agent in the sandbox holds more than 2 MiB; raise copy_mb"
        ):
            await sandbox.get("/logs/agent", tmp_path / "agent")
        assert not list(tmp_path.glob("agent/*"))

    asyncio.run(with_sandbox(use, copy_mb=2))


def test_a_sparse_file_within_the_bound_comes_out_whole(scratch, tmp_path):
    async def use(sandbox):
        await sandbox.exec("truncate -s 1M /logs/agent/holes; echo end >> /logs/agent/holes")
        await sandbox.get("/logs/agent", tmp_path / "agent")

    asyncio.run(with_sandbox(use))
    assert (tmp_path / "agent/holes").read_bytes() == bytes(1 << 20) + b"end\n"


def test_a_sandbox_has_no_network_by_default(scratch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        alone, shared = inside(f"bash -c '{reach}'"), inside(f"bash -c '{reach}'", network=True)
    assert (alone[0].return_code != 0, shared[0].return_code) == (True, 0)


@pytest.mark.parametrize("left_running", [False, True], ids=["a command", "a process that it left"])
def test_an_agent_that_fills_the_disk_is_stopped(scratch, monkeypatch, left_running):
    monkeypatch.setattr(disk_use, "LOOK_SECONDS", 0.01)
    fill = "while :; do head -c 256K /dev/zero >> /app/large; done"

    async def use(sandbox):
        with pytest.raises(
            RolloutError, match="the sandbox held more than 4 MiB, and was closed; raise disk_mb"
        ):
            await sandbox.exec(f"({fill}) & sleep 1000" if left_running else fill)
        with pytest.raises(RolloutError, match="held more than 4 MiB"):
            await sandbox.exec("true")

    asyncio.run(with_sandbox(use, disk_mb=4))


def test_holes_are_no_room_on_the_disk(tmp_path):
    with (tmp_path / "holes").open("wb") as file:
        file.truncate(3 << 30)
    (tmp_path / "link").symlink_to("/usr")
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    assert 1 << 20 <= disk_use.bytes_taken(tmp_path) < 2 << 20
