"""Where a thread that evsys runs is stuck."""

import threading

from evsys_runtime.experiment.supervision.stacks import place_in_threads, places_in_threads
from evsys_runtime.places import is_known

CALLS = "def call(work):\n    work()\n"


def test_a_thread_that_was_stuck_before_does_not_hide_the_one_that_is_stuck_now():
    over = threading.Event()
    entered = [threading.Event(), threading.Event()]

    def first():
        entered[0].set()
        over.wait(60)

    def second():
        entered[1].set()
        over.wait(60)

    toolkit = {"__name__": "evsys_runtime.work"}
    exec(CALLS, toolkit)
    threads = [threading.Thread(target=toolkit["call"], args=(work,)) for work in (first, second)]
    try:
        threads[0].start()
        entered[0].wait(60)
        while not (before := places_in_threads(known=is_known)):
            pass
        threads[1].start()
        entered[1].wait(60)
        while len(places_in_threads(known=is_known)) < len(before) + 1:
            pass
        assert place_in_threads(known=is_known, before=before).startswith(f"{__file__}:")
        assert place_in_threads(known=is_known) is None
    finally:
        over.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
