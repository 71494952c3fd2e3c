import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import attrs
import pytest

from evsys.errors import StoreError
from evsys_record import lock as lock_module
from evsys_record.lock import ExperimentLock, Holder

PREPARE = (
    "import errno, sys; from pathlib import Path\n"
    "from evsys.errors import StoreError; from evsys_record import lock\n"
    "def unsupported(descriptor): raise OSError(errno.ENOTSUP, 'no locks here')\n"
    "if sys.argv[2] == 'lease': lock._flock = unsupported\n"
)
HOLD = (
    f"{PREPARE}"
    "with lock.ExperimentLock(Path(sys.argv[1])):\n"
    "    print('held', flush=True)\n"
    "    sys.stdin.read()\n"
)


@pytest.fixture(params=["kernel", "lease"])
def mode(request, monkeypatch):
    """Both ways of holding a lock: with `flock`, and on a file system without it."""
    if request.param == "lease":

        def unsupported(descriptor):
            raise OSError(errno.ENOTSUP, "no locks here")

        monkeypatch.setattr(lock_module, "_flock", unsupported)
    return request.param


def hold(directory, mode):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory), mode],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "held\n"
    return child


def end(child, how=signal.SIGKILL):
    child.send_signal(how)
    child.communicate(timeout=30)


def test_a_second_process_is_refused_by_name(tmp_path, mode):
    child = hold(tmp_path, mode)
    try:
        with pytest.raises(StoreError) as caught:
            ExperimentLock(tmp_path).acquire()
        assert f"in use by process {child.pid} on {socket.gethostname()}" in str(caught.value)
        assert ExperimentLock(tmp_path).holder().pid == child.pid
    finally:
        end(child)


@pytest.mark.parametrize(
    "place", ["runs/a-s0/run.log.jsonl", "runs/a-s0/checkpoints", "runs", ".lock"], ids=str
)
def test_a_record_is_not_written_through_a_link_that_leads_out_of_it(tmp_path, place):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = tmp_path / "record" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    with pytest.raises(StoreError, match=f"{link} is a symbolic link to {outside}, outside the record"):
        ExperimentLock(tmp_path / "record").acquire()


def test_links_inside_a_record_and_in_folders_of_agents_hold_up_nobody(tmp_path):
    trial = tmp_path / "record/runs/a-s0/test/files/val-3/trial"
    trial.mkdir(parents=True)
    (trial / "passwd").symlink_to("/etc/passwd")
    (tmp_path / "record/again").symlink_to("runs")
    with ExperimentLock(tmp_path / "record") as lock:
        assert lock.held


def test_a_killed_holder_is_replaced_at_once(tmp_path, mode):
    end(hold(tmp_path, mode))
    assert ExperimentLock(tmp_path).holder() is None
    with ExperimentLock(tmp_path) as lock:
        assert lock.holder().pid == os.getpid()


def test_a_lock_can_be_taken_again_after_its_release(tmp_path, mode):
    for _ in range(2):
        with ExperimentLock(tmp_path) as lock:
            assert lock.held
        assert not lock.held
        assert ExperimentLock(tmp_path).holder() is None
    lock.release()


def test_the_same_process_is_refused_too(tmp_path, mode):
    with ExperimentLock(tmp_path) as lock:
        with pytest.raises(StoreError, match=f"process {os.getpid()}"):
            ExperimentLock(tmp_path).acquire()
        with pytest.raises(StoreError, match=f"process {os.getpid()}"):
            lock.acquire()
        assert lock.held


def test_a_lock_is_released_when_the_block_raises(tmp_path, mode):
    with pytest.raises(RuntimeError, match="inside"):
        with ExperimentLock(tmp_path):
            raise RuntimeError("inside")
    ExperimentLock(tmp_path).acquire().release()


def leave(directory, mode, holder, age=0.0):
    """What a holder elsewhere leaves in a shared folder."""
    path = directory / (".lock" if mode == "kernel" else ".lease")
    path.write_text(json.dumps(attrs.asdict(holder)), encoding="utf-8")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def elsewhere(**facts):
    facts = {
        "pid": 1,
        "host": "elsewhere",
        "since": "2026-01-01T00:00:00Z",
        "boot": "b",
        "token": "t",
        **facts,
    }
    return Holder(**facts)


def test_a_holder_on_another_machine_is_believed_while_it_renews(tmp_path, mode):
    leave(tmp_path, mode, elsewhere())
    with pytest.raises(StoreError, match="process 1 on elsewhere"):
        ExperimentLock(tmp_path).acquire()
    assert ExperimentLock(tmp_path).holder() == elsewhere()


def test_a_holder_on_another_machine_that_fell_silent_is_replaced(tmp_path, mode):
    leave(tmp_path, mode, elsewhere(), age=61)
    assert ExperimentLock(tmp_path).holder() is None
    with ExperimentLock(tmp_path) as lock:
        assert lock.holder().pid == os.getpid()


def test_a_holder_of_another_boot_may_be_a_machine_of_the_same_name(tmp_path, mode):
    here = attrs.evolve(Holder.here(), boot="another boot")
    leave(tmp_path, mode, here)
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        ExperimentLock(tmp_path).acquire()
    leave(tmp_path, mode, here, age=61)
    with ExperimentLock(tmp_path):
        pass


def test_a_number_that_another_process_got_is_not_the_holder(tmp_path, mode):
    here = Holder.here()
    if here.process_started is None:
        pytest.skip("this system doesn't tell when a process started")
    leave(tmp_path, mode, attrs.evolve(here, process_started="1"))
    with ExperimentLock(tmp_path):
        pass


def test_a_half_written_lock_is_taken_over_when_it_is_old(tmp_path, mode):
    path = leave(tmp_path, mode, elsewhere(), age=0)
    path.write_bytes(b'{"pid": 3')
    if mode == "lease":
        with pytest.raises(StoreError, match="another process"):
            ExperimentLock(tmp_path).acquire()
        old = time.time() - 61
        os.utime(path, (old, old))
    with ExperimentLock(tmp_path) as lock:
        assert lock.holder().pid == os.getpid()


def test_one_alone_may_replace_a_dead_lease(tmp_path, monkeypatch):
    """Somebody else is about to replace the same lease: it has the claim, so this process steps back."""

    def unsupported(descriptor):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(lock_module, "_flock", unsupported)
    leave(tmp_path, "lease", elsewhere(token="t1"), age=61)
    claim = tmp_path / ".lease.t1"
    claim.write_text(json.dumps(attrs.asdict(elsewhere(pid=2))), encoding="utf-8")
    with pytest.raises(StoreError, match=r"process 2 on elsewhere.*if it is dead, remove .*\.lease\.t1"):
        ExperimentLock(tmp_path).acquire()
    claim.unlink()
    with ExperimentLock(tmp_path):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock"]


def test_a_lease_that_was_replaced_meanwhile_is_left_alone(tmp_path, monkeypatch):
    """Between judging a lease dead and claiming it, another process became its holder."""

    def unsupported(descriptor):
        raise OSError(errno.ENOTSUP, "no locks here")

    monkeypatch.setattr(lock_module, "_flock", unsupported)
    leave(tmp_path, "lease", elsewhere(token="t1"), age=61)
    real = lock_module._create

    def create(path, content):
        if path.name == ".lease.t1":
            leave(tmp_path, "lease", elsewhere(pid=3, token="t2"))
        real(path, content)

    monkeypatch.setattr(lock_module, "_create", create)
    with pytest.raises(StoreError, match="process 3 on elsewhere"):
        ExperimentLock(tmp_path).acquire()
    assert ExperimentLock(tmp_path).holder().pid == 3


def test_the_lock_is_renewed_while_it_is_held(tmp_path, mode):
    lock = ExperimentLock(tmp_path, lease_seconds=0.02)
    with lock:
        path = tmp_path / (".lock" if mode == "kernel" else ".lease")
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 20
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            os.sched_yield()
        assert path.stat().st_mtime > 0


def test_an_unwritable_folder_is_told(tmp_path, monkeypatch):
    def refuse(path, *arguments):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreError, match=r"can't lock .*read-only"):
        ExperimentLock(tmp_path).acquire()


def test_other_errors_of_the_kernel_are_not_taken_for_a_missing_feature(tmp_path, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(lock_module, "_flock", broken)
    with pytest.raises(StoreError, match="can't lock"):
        ExperimentLock(tmp_path).acquire()


def test_of_many_processes_starting_at_once_one_gets_the_lock(tmp_path, mode):
    script = (
        f"{PREPARE}"
        "sys.stdin.readline()\n"
        "try:\n    lock.ExperimentLock(Path(sys.argv[1])).acquire()\n    print('held', flush=True)\n"
        "except StoreError as exc:\n    print('refused', flush=True)\n"
        "sys.stdin.read()\n"
    )
    children = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(5)
    ]
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    answers = [child.stdout.readline().strip() for child in children]
    for child in children:
        end(child)
    assert sorted(answers) == ["held", *["refused"] * 4]


def test_a_holder_that_was_replaced_notices_it_and_refuses_to_write(tmp_path, mode):
    noticed = threading.Event()
    lock = ExperimentLock(tmp_path, lease_seconds=0.2).acquire()
    lock.when_lost(noticed.set)
    lock.refuse_if_lost()
    other = attrs.evolve(Holder.here(), pid=4711, host="elsewhere", boot="another")
    path = leave(tmp_path, mode, other)
    assert noticed.wait(30)
    with pytest.raises(
        StoreError, match="was taken over by process 4711 on elsewhere, since .* been suspended"
    ):
        lock.refuse_if_lost()
    assert lock.lost
    lock.release()
    assert json.loads(path.read_text(encoding="utf-8"))["pid"] == 4711  # what the other one wrote stays


def test_a_lock_file_that_can_not_be_read_for_a_while_is_renewed_when_it_can(tmp_path, mode, monkeypatch):
    real, failures = lock_module._read, []

    def away(path):
        if len(failures) < 3 and threading.current_thread().name == "evsys-lock":
            failures.append(path)
            raise OSError(errno.ESTALE, "the disk is away")
        return real(path)

    renewed, utime = threading.Event(), os.utime

    def renew(path):
        utime(path)
        renewed.set()

    monkeypatch.setattr(lock_module, "_read", away)
    monkeypatch.setattr(lock_module.os, "utime", renew)
    with ExperimentLock(tmp_path, lease_seconds=0.04) as lock:
        assert renewed.wait(30)
        assert len(failures) == 3
        assert not lock.lost
