"""Databases are opened by their URL, and brought to the newest schema."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from evsys.errors import ConfigError, StoreError
from evsys_dashboard.store.database import Database, clean, sqlite_url
from evsys_dashboard.store.tables import metadata


def test_a_new_database_has_the_tables_that_the_code_describes(database):
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_database_is_opened_again_as_it_was(tmp_path):
    url = sqlite_url(tmp_path / "a.sqlite")
    Database(url).close()
    again = Database(url)
    with again.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    again.close()


def test_a_database_of_a_newer_version_is_refused(tmp_path):
    url = sqlite_url(tmp_path / "a.sqlite")
    first = Database(url)
    with first.writing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    first.close()
    with pytest.raises(StoreError, match="a newer version of evsys-dashboard made this database"):
        Database(url)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://someone@localhost/x", "oracle://x"])
def test_any_other_url_is_refused(url):
    with pytest.raises(ConfigError):
        Database(url)


def test_a_database_that_cannot_be_opened_is_reported_without_its_password(tmp_path):
    with pytest.raises(StoreError, match="can't use the database"):
        Database(sqlite_url(tmp_path / "nowhere" / "a.sqlite"))


def test_text_that_a_database_refuses_is_replaced():
    assert clean("a\x00b\ud800c\U0001f600") == "a\u2400b\ufffdc\U0001f600"
