"""Datasets and benchmarks by ID."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make their tables."""
    op.create_table(
        "blob",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("rows", sa.BigInteger(), nullable=True),
        sa.Column("sealed", sa.Boolean(), nullable=False),
        sa.Column("seen", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_blob_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob")),
        sa.UniqueConstraint("project_id", "digest", name=op.f("uq_blob_project_id_digest")),
    )
    op.create_table(
        "data_name",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name=op.f("fk_data_name_project_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_name")),
        sa.UniqueConstraint("project_id", "kind", "name", name=op.f("uq_data_name_project_id_kind_name")),
    )
    op.create_table(
        "chunk",
        sa.Column("blob_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("first_row", sa.BigInteger(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["blob_id"], ["blob.id"], name=op.f("fk_chunk_blob_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("blob_id", "number", name=op.f("pk_chunk")),
    )
    op.create_table(
        "data_check",
        sa.Column("dataset_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("benchmark_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["blob.id"], name=op.f("fk_data_check_benchmark_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["blob.id"], name=op.f("fk_data_check_dataset_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("dataset_id", "benchmark_id", name=op.f("pk_data_check")),
    )
    op.create_index(op.f("ix_data_check_benchmark_id"), "data_check", ["benchmark_id"], unique=False)
    op.create_table(
        "data_read",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("blob_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("how", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["blob_id"], ["blob.id"], name=op.f("fk_data_read_blob_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_read")),
    )
    op.create_index(op.f("ix_data_read_blob_id_key"), "data_read", ["blob_id", "key"], unique=False)
    op.create_table(
        "data_version",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("data_name_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("blob_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("file", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["blob_id"], ["blob.id"], name=op.f("fk_data_version_blob_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["data_name_id"], ["data_name.id"], name=op.f("fk_data_version_data_name_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_data_version")),
        sa.UniqueConstraint("data_name_id", "blob_id", name=op.f("uq_data_version_data_name_id_blob_id")),
        sa.UniqueConstraint("data_name_id", "number", name=op.f("uq_data_version_data_name_id_number")),
    )
    op.create_table(
        "data_origin",
        sa.Column("data_version_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("origin_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.ForeignKeyConstraint(
            ["data_version_id"],
            ["data_version.id"],
            name=op.f("fk_data_origin_data_version_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["origin_id"], ["data_version.id"], name=op.f("fk_data_origin_origin_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("data_version_id", "origin_id", name=op.f("pk_data_origin")),
    )
    op.create_index(op.f("ix_data_origin_origin_id"), "data_origin", ["origin_id"], unique=False)
