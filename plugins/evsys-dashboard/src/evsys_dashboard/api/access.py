"""Who may do what: a key in the header of a request, or a browser's session."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING

import attrs

from evsys_dashboard.api.errors import RefusedError
from evsys_dashboard.store.keys import SCOPES, Key, Keys
from evsys_record.encoding import utf8
from evsys_runtime.serving.keys import WrongKeys
from evsys_runtime.serving.origins import foreign_page

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["COOKIE", "EVERYTHING", "TOKEN", "Access", "KeyGate", "LocalGate"]

COOKIE = "evsys_session"
TOKEN = "X-CSRF-Token"  # noqa: S105 - a header's name
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@attrs.frozen(kw_only=True)
class Access:
    """The rights of the sender of a request.

    Attributes:
        name: printable part of the key; None in a project, where no key is needed.
        scopes: of the key.
        project: the one that the key is for; None for all.
        token: that a browser's session sends with each change.
    """

    name: str | None
    scopes: frozenset[str]
    project: str | None
    token: str | None = None

    def may(self, scope: str | None, project: str | None) -> bool:
        """Whether this scope is granted for this project. `admin` grants all but `test`."""
        granted = scope is None or scope in self.scopes or (scope != "test" and "admin" in self.scopes)
        return granted and (project is None or self.project in {None, project})


EVERYTHING = Access(name=None, scopes=frozenset(SCOPES), project=None)
"""Access of the person at this machine to the project that they are in."""


class LocalGate:
    """The gate of a project's dashboard: this machine's own pages and programs may do everything."""

    async def access(self, request: web.Request, *, required: bool) -> Access:
        """The rights of a request.

        Raises:
            RefusedError: it may come from a page of someone else.
        """
        self.refuse_foreign(request)
        return EVERYTHING

    def refuse_foreign(self, request: web.Request) -> None:
        """Refuse requests that a page of someone else may have sent."""
        why = foreign_page(request)
        if why is not None:
            raise RefusedError(403, why, hint="open the dashboard by 127.0.0.1 or localhost")


class KeyGate:
    """The gate of a team's server: a key in each request, or the cookie of a session that began with one.

    Args:
        keys: the keys.
        wrong: counts the wrong ones.
    """

    def __init__(self, keys: Keys, wrong: WrongKeys) -> None:
        self._keys = keys
        self._wrong = wrong

    def refuse_foreign(self, request: web.Request) -> None:
        """Refuse requests of pages from another host than the one that was asked."""
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise RefusedError(400, "a request names one Host")
        for origin in request.headers.getall("Origin", []):
            if origin.partition("://")[2] != hosts[0]:
                raise RefusedError(403, "the Origin is another site's")

    async def access(self, request: web.Request, *, required: bool) -> Access:
        """The rights of a request.

        Args:
            request: the request.
            required: refuse it without a valid key; else it then has no rights.

        Raises:
            RefusedError: there is no valid key, or a change comes without the session's token.
        """
        self.refuse_foreign(request)
        given = request.headers.getall("Authorization", [])
        if given:
            return await self._by_key(request, given)
        secret = request.cookies.get(COOKIE)
        found = None if secret is None else await asyncio.to_thread(self._keys.session, secret)
        if found is not None:
            token = request.headers.get(TOKEN, "")
            if request.method not in _READING and not hmac.compare_digest(utf8(token), utf8(found.token)):
                raise RefusedError(403, f"the header {TOKEN} doesn't have the session's token")
            return access_of(found.key, token=found.token)
        if required:
            raise RefusedError(401, "there is no key", hint="send it as `Authorization: Bearer KEY`")
        return Access(name=None, scopes=frozenset(), project=None)

    async def _by_key(self, request: web.Request, given: list[str]) -> Access:
        scheme, _, text = given[0].partition(" ")
        key = None
        if len(given) == 1 and scheme.lower() == "bearer":
            key = await asyncio.to_thread(self._keys.find, text.strip())
        if key is None:
            await self._wrong.hold(request)
            raise RefusedError(401, "the key isn't valid", hint="ask an administrator for a key")
        return access_of(key)


def access_of(key: Key, token: str | None = None) -> Access:
    """The rights that a key grants."""
    return Access(name=key.prefix, scopes=frozenset(key.scopes), project=key.project, token=token)
