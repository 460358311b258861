"""Scored answers: rewards with their parts and reasons, by answer and reward version."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scored_answers",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("score_id", sa.String(), nullable=False),
        sa.Column("sample_id", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("reward", sa.LargeBinary(), nullable=False),
        sa.Column("processed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scored_answers"),
        sa.ForeignKeyConstraint(["key_id"], ["data_keys.key_id"], name="fk_scored_answers_key_id"),
        sa.UniqueConstraint("score_id", name="uq_scored_answers_score_id"),
        sqlite_autoincrement=True,
    )
    for column in ("sample_id", "version", "processed", "key_id"):
        op.create_index(f"ix_scored_answers_{column}", "scored_answers", [column])
