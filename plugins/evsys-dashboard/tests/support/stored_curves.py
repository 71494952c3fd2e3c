"""Curves as a store gives them."""

import sqlalchemy as sa

from evsys_dashboard.store.curves import Buckets, live_buckets
from evsys_dashboard.store.tables import series


def stored_curve(connection: sa.Connection, number: int, attempts=(), most: int = 10**9) -> Buckets:
    """The live values of the series with this number, every one of them unless `most` is lower."""
    row = connection.execute(sa.select(series).where(series.c.id == number)).mappings().one()
    return live_buckets(connection, row, attempts, most)
