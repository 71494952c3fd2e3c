"""Blocking calls in threads that never keep the process alive."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future

__all__ = ["in_daemon_thread"]


def in_daemon_thread[T](call: Callable[[], T], name: str) -> Future[T]:
    """Run a call in a thread of its own, with the caller's context variables.

    A client that can't reach its server blocks for five minutes; a thread of a pool would hold up the end of the process for
    as long, even where nothing waits for the call any more.
    """
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = context.run(call)
        except BaseException as error:  # whoever waits gets it
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=work, name=name, daemon=True).start()
    return future
