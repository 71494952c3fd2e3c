"""The extent of each block of a series, and the newest points in the series itself."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add columns. Blocks that are there keep their points; their extents stay unknown."""
    extent: list[sa.Column[Any]] = [
        sa.Column("first_step", sa.BigInteger(), nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=True),
        sa.Column("low", sa.Float(), nullable=True),
        sa.Column("high", sa.Float(), nullable=True),
        sa.Column("ascending", sa.Boolean(), nullable=True),
    ]
    if op.get_bind().dialect.name == "sqlite":
        # SQLite reads through `data` to get at columns behind it, so the table is made again with these before it.
        # Nothing refers to it; to `series` blocks do, and would be removed with it.
        with op.batch_alter_table("block", recreate="always") as table:
            for before, column in zip(["count", *(each.name for each in extent)], extent, strict=False):
                table.add_column(column, insert_after=before)
    else:
        for column in extent:
            op.add_column("block", column)
    op.add_column("series", sa.Column("blocks", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("series", sa.Column("tail_attempt", sa.Integer(), nullable=True))
    op.add_column("series", sa.Column("tail", sa.LargeBinary(), nullable=True))
    op.execute(
        "UPDATE series SET blocks = "
        "COALESCE((SELECT MAX(number) + 1 FROM block WHERE block.series_id = series.id), 0)"
    )
