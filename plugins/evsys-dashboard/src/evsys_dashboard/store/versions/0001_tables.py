"""The first tables."""

from alembic import op

from evsys_dashboard.store.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    metadata.create_all(op.get_bind())
