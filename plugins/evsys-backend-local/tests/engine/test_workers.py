import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from evsys_backend_local.engine.estimate import estimate, measure_roof
from evsys_backend_local.engine.shape import ModelShape
from evsys_backend_local.engine.workers import WorkerPool, blas_info, blas_threads


def test_work_is_dealt_the_same_way_each_time_and_evenly():
    pool = WorkerPool(2, np.float32)
    hands = pool.deal([5, 1, 4, 2, 2])
    assert hands == pool.deal([5, 1, 4, 2, 2])
    assert sorted(item for hand in hands for item in hand) == [0, 1, 2, 3, 4]
    assert sorted(sum([5, 1, 4, 2, 2][i] for i in hand) for hand in hands) == [7, 7]
    pool.close()


def test_workers_run_at_once_with_memory_of_their_own():
    pool = WorkerPool(2, np.float32)
    barrier = threading.Barrier(2, timeout=20)

    def task(workspace):
        barrier.wait()
        return id(workspace)

    assert len(set(pool.run([task, task]))) == 2
    pool.close()


def test_a_failure_in_a_worker_reaches_the_caller():
    pool = WorkerPool(2, np.float32)

    def fails(workspace):
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        pool.run([lambda ws: 1, fails])
    assert pool.run([lambda ws: 1, lambda ws: 2]) == [1, 2]
    pool.close()


def threads_now():
    return {entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"}


def test_the_number_of_blas_threads_is_restored():
    before = threads_now()
    with blas_threads(1):
        assert threads_now() == {1}
    assert threads_now() == before


def test_the_record_has_the_threads_of_the_process_even_while_somebody_computes():
    before = blas_info()
    with blas_threads(1):
        assert blas_info() == before
    assert {before["threads"]} == threads_now()


def test_blas_info_tells_what_decides_the_last_bits(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    info = blas_info()
    assert info["coretype"] == "Haswell"
    assert {"name", "version", "kernel", "threads", "numpy"} <= set(info)


def test_estimate_grows_with_work_and_with_the_model():
    small = ModelShape(dim=128, layers=4, heads=4, kv_heads=2, head_dim=32, hidden=352, vocab=259)
    large = ModelShape(dim=576, layers=30, heads=9, kv_heads=3, head_dim=64, hidden=1536, vocab=49152)
    settings = {"rows": 1024, "steps": 10, "workers": 2, "roof": 1e11}
    one, ten = estimate(small, **settings), estimate(small, **{**settings, "steps": 100})
    assert ten.seconds == pytest.approx(10 * one.seconds)
    big = estimate(large, **settings)
    assert 15 < big.seconds < 60
    assert measure_roof(0.01) > 1e8
