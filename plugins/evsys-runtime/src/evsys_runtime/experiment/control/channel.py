"""The control channel of one experiment: open while its runs are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from evsys.errors import StoreError
from evsys_record.control import Address, remove_address, write_address
from evsys_runtime.experiment.control.listening import listen
from evsys_runtime.experiment.control.requests import Requests
from evsys_runtime.experiment.control.server import ControlServer
from evsys_runtime.experiment.control.status import StatusLine
from evsys_runtime.experiment.state.session import Session

__all__ = ["control_channel"]


@contextmanager
def control_channel(session: Session) -> Iterator[Address | None]:
    """Listen for requests; call it in the event loop of the experiment, with its record's lock held.

    Its address is put on record once it is bound, and taken off at the end.

    Yields:
        The address; None if no socket can be bound, of which the log is told. The experiment runs all the same.
    """
    directory = session.record.directory
    try:
        listener = listen(directory)
    except OSError as error:
        session.log.warning("control.not_bound", reason=str(error))
        yield None
        return
    status = StatusLine(session)
    requests = Requests(session, changed=status.renew)
    server = ControlServer(
        listener, loop=asyncio.get_running_loop(), status=status.read, act=requests.carry_out
    )
    server.start()
    try:
        try:
            write_address(directory, listener.address)
        except StoreError as error:
            session.log.warning("control.not_bound", reason=error.message)
        yield listener.address
    finally:
        remove_address(directory)
        server.close()
