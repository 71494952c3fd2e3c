"""Taking secrets out of what is written.

A secret is known by the name of its key (`api_key`, `Authorization`, ...), by its place in a text (user and password in
an address, `token=` and the like in its query, what follows `Authorization:`, `Basic` or `Bearer`), by its shape where
its issuer gave it one (`hf_...`, `ghp_...`), or by its value: that of an environment variable whose name ends like a
secret's.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any

from evsys_record.encoding import field_values

__all__ = [
    "REDACTED",
    "Redactor",
    "address_credentials",
    "could_be_no_word",
    "is_secret_name",
    "issued_key",
    "redact",
]

REDACTED = "[redacted]"

_VARIABLE = re.compile(r"(?i).*(_|^)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)")
_NAME = re.compile(
    r"(?i)(.*[_\-.])?("
    r"(api|access|account|auth|encryption|private|secret|service|signing|subscription)[_-]?key|apikey"
    r"|secret|password|passwd|passphrase|credentials?|authorization|cookie|set-cookie|token"
    r")"
)
_NOT_SECRET = re.compile(
    r"(?i)(.*[_\-.])?(begin|bos|cls|end|eos|first|image|last|mask|next|pad|sep|special|start|stop|unk)[_-]?token"
)
_USER_INFO = re.compile(
    r"""(?x)(?<=://)(?:
    # user:password. A password may hold what should have been escaped, so it goes to the last @; an @ behind ? or # is
    # the query's if there is one before it. A number and a slash are a port and a path, and [ begins an IPv6 address.
    [^\s/?#:"'<>\[]*:(?!\d{1,5}[/?#])(?:(?:(?!://)[^\s"'?#])*@|(?:(?!://)[^\s"'])*@)
    # A user or a token alone, as far as the host.
    |[^\s/?#"'<>:\\]+@)"""
)
_QUERY = re.compile(r"""(?<=[?&;])([\w.-]+)=([^\s&;#"'<>\\]+)""")
_QUERY_NAME = re.compile(r"(?i)auth|key|pwd|(.*-)?sig(nature)?")
"""Names of secrets in an address's query that elsewhere may be ordinary words."""

_HEADER = re.compile(
    r"""(?ix)(\bauthorization (?:\\*["'])? \s*[:=](?:\s|\\[nrt])* (?:\\*["'])?
    (?:(?:basic|bearer|bot|digest|key|token)\s+)?)
    [^\s"'\\,;&<>\]})][^\s"'\\,;&<>]*"""
)
"""The cut must leave JSON valid: a backslash belongs to a quote, or with its letter to white space; a quote and a
closing bracket end the text of the header.
"""

_BEARER = re.compile(r"(?i)(?<=\bbearer )[\w.~+/=-]{8,}")
_BASIC = re.compile(r"(?i)(?<=\bbasic )[\w+/-]{4,}={0,2}")
_ISSUED = re.compile(
    r"""(?x)(?<![A-Za-z0-9])(?:
    hf_[A-Za-z0-9]{30,}                                # Hugging Face
    |gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}     # GitHub
    |glpat-[\w-]{20,}                                  # GitLab
    |(?P<words>(?:sk|tml)-[\w-]{20,})                 # OpenAI, Anthropic, Tinker, if a digit is in it
    |xox[abeoprs]-[A-Za-z0-9-]{10,}                    # Slack
    |A(?:KI|SI)A[A-Z0-9]{16}                           # Amazon Web Services
    |AIza[\w-]{35}                                     # Google
    |pypi-[\w-]{50,}
    )(?![A-Za-z0-9])"""
)
"""Keys whose prefix names their issuer. Each is too long, and too random, to be a word.

Each alternative takes everything that could belong to it and is never tried again inside it, so that searching
takes linear time.
"""

_ISSUERS = (
    "hf_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "sk-",
    "tml-",
    "xox",
    "AKIA",
    "ASIA",
    "AIza",
    "pypi-",
)
_MARKS = re.compile(r"(?i)uthorization|bearer |basic ")
_RANDOM = re.compile(r"(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z])\S{16,}")
MOST_NESTED = 10
"""Addresses inside addresses looked for: without a bound, a text of many `://` takes quadratic time."""

_SHORTEST = 8
"""Values shorter than this aren't looked for: `1` or `true` would be found everywhere."""


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """True when text under this key is a secret: `api_key`, `hf_token`, but not `cluster_key` or `eos_token`."""
    return _NAME.fullmatch(name) is not None and _NOT_SECRET.fullmatch(name) is None


def could_be_no_word(text: str) -> bool:
    """True for text that no one writes by chance: long, without spaces, of letters and digits."""
    return _RANDOM.fullmatch(text) is not None


def issued_key(text: str) -> int | None:
    """The place of the first key whose prefix names its issuer (`hf_...`); None if there isn't one."""
    if not any(mark in text for mark in _ISSUERS):
        return None
    return next((found.start() for found in _ISSUED.finditer(text) if _is_key(found)), None)


def address_credentials(text: str) -> bool:
    """True when an address in `text` has a user with a password, or a secret in its query (`?token=...`)."""
    users = "://" in text and "@" in text and _without_user_info(text) != text
    return users or ("?" in text and _QUERY.sub(_without_value, text) != text)


def _is_key(found: re.Match[str]) -> bool:
    """False for words in a row that begin like a key."""
    return found["words"] is None or any(map(str.isdigit, found["words"]))


class Redactor:
    """Knows the secrets of this process. Cheap where there is nothing to take out, which is nearly always."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        """`values` maps names (of variables, say) to secrets."""
        names = {value: name for name, value in (values or {}).items() if len(value) >= _SHORTEST}
        # In a line of JSON a value stands escaped.
        names |= {json.dumps(value, ensure_ascii=False)[1:-1]: name for value, name in names.items()}
        self._values = tuple(sorted(names, key=lambda value: (-len(value), value)))
        self._telling = [(value, names[value]) for value in self._values if could_be_no_word(value)]

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] | None = None, *, extra: Mapping[str, str] | None = None
    ) -> Redactor:
        """Know the values of variables named `*_KEY`, `*_TOKEN`, `*_SECRET`, `*_PASSWORD`, and those in `extra`."""
        variables = os.environ if environment is None else environment
        named = {name: value for name, value in variables.items() if _VARIABLE.fullmatch(name)}
        return cls({**named, **(extra or {})})

    def values(self, text: str) -> str:
        """`text` without the values of secrets; everything else is left alone."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        return text

    def line(self, text: str) -> str:
        """A line of JSON without the values of secrets, and still one where such a value is a number elsewhere in it."""
        found = self.values(text)
        if found == text:
            return text
        try:
            json.loads(found)
        except ValueError:
            whole = self.known(json.loads(text))
            return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        return found

    def known(self, obj: Any) -> Any:
        """A copy of JSON values whose texts, keys among them, hold no value of a secret; everything else is left alone."""
        if isinstance(obj, str):
            return self.values(obj)
        if isinstance(obj, Mapping):
            return {self.known(key): self.known(value) for key, value in obj.items()}
        if isinstance(obj, list | tuple):
            return [self.known(value) for value in obj]
        return obj

    def text(self, text: str) -> str:
        """`text` without secrets known by their value, their place or their shape.

        A line of JSON stays one: no replacement reaches over a quote or splits an escape.
        """
        text = self.values(text)
        if "://" in text and "@" in text:
            text = _without_user_info(text)
        if "=" in text and ("?" in text or "&" in text or ";" in text):
            text = _QUERY.sub(_without_value, text)
        if issued_key(text) is not None:
            text = _ISSUED.sub(lambda found: REDACTED if _is_key(found) else found[0], text)
        return _without_credentials(text) if _MARKS.search(text) else text

    def tree(self, obj: Any, name: str = "") -> Any:
        """A copy in which no text is a secret; what isn't text, a mapping or a list stays as it is."""
        if isinstance(obj, str):
            return REDACTED if obj and is_secret_name(name) and not _is_reference(obj) else self.text(obj)
        if isinstance(obj, bytes):
            return REDACTED if is_secret_name(name) else obj
        if isinstance(obj, Mapping):
            below = name if is_secret_name(name) else ""
            return {self.known(key): self.tree(value, below or str(key)) for key, value in obj.items()}
        if isinstance(obj, list | tuple):
            return [self.tree(value, name) for value in obj]
        fields = field_values(obj)
        return obj if fields is None else self.tree(fields, name)

    def leaked(self, text: str) -> dict[str, int]:
        """Names of the secrets whose value is in `text`, and where it begins. Only values that can't be ordinary
        words count.
        """
        found = {name: text.index(value) for value, name in self._telling if value in text}
        return {name: found[name] for name in sorted(found)}


def _without_user_info(text: str) -> str:
    """`text` whose addresses name no user. The rest after a cut may be an address in turn, so this is repeated a
    few times.
    """
    for _ in range(MOST_NESTED):
        shorter = _USER_INFO.sub(f"{REDACTED}@", text)
        if shorter == text:
            break
        text = shorter
    return text


def _without_value(match: re.Match[str]) -> str:
    """A part of a query, `name=value`, without the value of a secret."""
    name, value = match.groups()
    secret = is_secret_name(name) or _QUERY_NAME.fullmatch(name) is not None
    return f"{name}={REDACTED}" if secret and not _is_reference(value) else match[0]


def _without_credentials(text: str) -> str:
    text = _HEADER.sub(rf"\1{REDACTED}", text)
    text = _BEARER.sub(REDACTED, text)
    return _BASIC.sub(_without_login, text)


def _without_login(match: re.Match[str]) -> str:
    """The word after `Basic` is a login if it is base64 of `user:password`, and else a word like any other."""
    encoded = match[0].rstrip("=")
    try:
        login = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_")
    except ValueError:
        return match[0]
    return REDACTED if b":" in login else match[0]


def _is_reference(text: str) -> bool:
    """True for `${NAME}`: it names a secret without containing it."""
    return text.startswith("${") and text.endswith("}")


def redact(obj: Any) -> Any:
    """`Redactor.tree` with what the environment holds now."""
    return Redactor.from_environment().tree(obj)
