"""Keys and browser sessions: random, shown once, kept as digests."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence

import attrs
import sqlalchemy as sa

from evsys.errors import ConfigError
from evsys_dashboard.store.database import Database, clean
from evsys_dashboard.store.tables import api_key, session
from evsys_record.encoding import now, utf8

__all__ = ["SCOPES", "Key", "Keys", "Session"]

SCOPES = ("read", "write", "test", "admin")
"""`read` shows, `write` sends records, `test` reads rows of test sets, `admin` manages keys and may all but `test`."""

SESSION_SECONDS = 12 * 3600.0
"""How long a browser stays signed in."""

_MARK = "evk"
_NOBODY = b"\0" * 32

_BY_PREFIX = sa.select(api_key).where(api_key.c.prefix == sa.bindparam("prefix"))  # of each request


@attrs.frozen(kw_only=True)
class Key:
    """A key as it is listed. `prefix` is its printable part; `project` is None for a key to all projects."""

    prefix: str
    scopes: tuple[str, ...]
    project: str | None
    note: str | None
    created: str
    revoked: str | None


@attrs.frozen(kw_only=True)
class Session:
    """A browser that signed in with a key. `token` must come with each of its changes."""

    key: Key
    token: str


class Keys:
    """The keys of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(
        self, scopes: Sequence[str], *, project: str | None, note: str | None = None
    ) -> tuple[Key, str]:
        """Make a key; it and its text, which is kept nowhere.

        Raises:
            ConfigError: there is no such scope, or none is given.
        """
        unknown = [scope for scope in scopes if scope not in SCOPES]
        if unknown or not scopes:
            raise ConfigError(
                f"unknown scope {unknown[0]!r}" if unknown else "a key needs a scope",
                hint=f"scopes: {', '.join(SCOPES)}",
            )
        prefix = f"{_MARK}_{secrets.token_hex(5)}"
        text = f"{prefix}_{secrets.token_urlsafe(32)}"
        key = Key(
            prefix=prefix,
            scopes=tuple(scope for scope in SCOPES if scope in scopes),
            project=None if project is None else clean(project),
            note=None if note is None else clean(note),
            created=now(),
            revoked=None,
        )
        row = {**attrs.asdict(key), "scopes": " ".join(key.scopes), "digest": _digest(text)}
        with self._database.writing() as connection:
            connection.execute(sa.insert(api_key).values(row))
        return key, text

    def all(self) -> list[Key]:
        """Every key, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(api_key).order_by(api_key.c.id)).mappings().all()
        return [_key(row) for row in rows]

    def revoke(self, prefix: str) -> Key:
        """End a key, and the sessions that began with it.

        Raises:
            ConfigError: there is no key with this prefix.
        """
        with self._database.writing() as connection:
            found = (
                connection.execute(sa.select(api_key).where(api_key.c.prefix == clean(prefix)))
                .mappings()
                .one_or_none()
            )
            if found is None:
                raise ConfigError(
                    f"no key begins with {prefix!r}", hint="`evsys dashboard keys list` shows them"
                )
            connection.execute(sa.delete(session).where(session.c.api_key_id == found["id"]))
            if found["revoked"] is None:
                ended = sa.update(api_key).where(api_key.c.id == found["id"]).values(revoked=now())
                connection.execute(ended)
        return _key(found)

    def find(self, text: str) -> Key | None:
        """The key of this text; None if there is none, or it was revoked."""
        found = self._row(text)
        return None if found is None else _key(found)

    def is_valid(self, prefix: str) -> bool:
        """Whether there is a key with this prefix that was not revoked."""
        with self._database.reading() as connection:
            row = connection.execute(_BY_PREFIX, {"prefix": prefix}).mappings().one_or_none()
        return row is not None and row["revoked"] is None

    def _row(self, text: str) -> sa.RowMapping | None:
        prefix = clean("_".join(text.split("_")[:2]))
        with self._database.reading() as connection:
            row = connection.execute(_BY_PREFIX, {"prefix": prefix}).mappings().one_or_none()
        same = hmac.compare_digest(_digest(text), _NOBODY if row is None else bytes(row["digest"]))
        return row if row is not None and same and row["revoked"] is None else None

    # --- sessions ---

    def begin_session(self, text: str) -> tuple[Session, str] | None:
        """Sign a browser in with the text of a key; the session and its secret. None for a wrong key."""
        found = self._row(text)
        if found is None:
            return None
        secret, token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        row = {
            "digest": _digest(secret),
            "api_key_id": found["id"],
            "token": token,
            "expires": time.time() + SESSION_SECONDS,
        }
        with self._database.writing() as connection:
            connection.execute(sa.delete(session).where(session.c.expires < time.time()))
            connection.execute(sa.insert(session).values(row))
        return Session(key=_key(found), token=token), secret

    def session(self, secret: str) -> Session | None:
        """The session of a browser; None if it is over."""
        query = (
            sa.select(session.c.token, api_key)
            .join(api_key, api_key.c.id == session.c.api_key_id)
            .where(
                session.c.digest == _digest(secret),
                session.c.expires >= time.time(),
                api_key.c.revoked.is_(None),
            )
        )
        with self._database.reading() as connection:
            found = connection.execute(query).mappings().one_or_none()
        return None if found is None else Session(key=_key(found), token=found["token"])

    def end_session(self, secret: str) -> None:
        """Sign a browser out."""
        with self._database.writing() as connection:
            connection.execute(sa.delete(session).where(session.c.digest == _digest(secret)))


def _digest(text: str) -> bytes:
    """A plain hash is enough for 32 random bytes, which no one guesses."""
    return hashlib.sha256(utf8(text)).digest()


def _key(row: sa.RowMapping) -> Key:
    values = {field.name: row[field.name] for field in attrs.fields(Key)}
    return Key(**{**values, "scopes": tuple(values["scopes"].split())})
