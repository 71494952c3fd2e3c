"""The database: its tables, its migrations, and the differences between SQLite and PostgreSQL, which end here."""
