"""From the name of a plugin to those of its distribution, its package and its class; and which names there can be."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["HOUSE", "PluginNames", "fault_of_distribution", "fault_of_name", "names_in", "names_of"]

HOUSE = frozenset(
    {
        *("agents", "autoresearch", "deployers", "mcp", "traces"),
        *(
            "algo-distill",
            "algo-dpo",
            "algo-rl",
            "algo-sft",
            "autoresearch",
            "backend-local",
            "backend-mock",
            "backend-tinker",
        ),
        *(
            "cli",
            "conformance",
            "core",
            "dashboard",
            "loggers",
            "plots",
            "rollouts-harbor",
            "runtime",
            "sdk",
            "search-optuna",
        ),
        *("record", "server", "stats", "std", "verifiers-std", "workspace"),
    }
)
"""The parts after `evsys-` in the names of evsys' own distributions."""

MAX_LENGTH = 60
_SHAPE = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*(?:[@^](?:k|[1-9][0-9]*))?")
_OF_SAMPLES = re.compile(r"(.+)([@^])(\w+)")
_NOT_TEXT = frozenset({"null", "true", "false"})
"""Words that YAML doesn't read as text."""


class PluginNames(NamedTuple):
    """`my-thing` of the kind `verifier` is `evsys-my-thing`, `evsys_my_thing` and `MyThingVerifier`."""

    kind: str
    name: str
    distribution: str
    package: str
    class_name: str

    @property
    def top_package(self) -> str:
        """The package of the distribution, which may hold those of several plugins."""
        return self.package.partition(".")[0]

    @property
    def is_family(self) -> bool:
        """True for `best@k`, of which an experiment file names members such as `best@3`."""
        return self.name.endswith(("@k", "^k"))


def names_of(kind: str, name: str, distribution: str | None = None) -> PluginNames:
    """The names of the plugin that a distribution is made for; by default it is called like the plugin."""
    own = distribution or "-".join(["evsys", *_words(name)])
    return PluginNames(kind, name, own, own.replace("-", "_"), _class_name(kind, name))


def names_in(distribution: str, kind: str, name: str) -> PluginNames:
    """The names of a further plugin of a distribution: it has a package inside the distribution's own."""
    words = [*_words(name), *([] if name.replace("-", "_").endswith(kind) else [kind])]
    # The kind at the end keeps `lambda` from being a module's name, and two kinds of one name apart.
    package = f"{distribution.replace('-', '_')}.{'_'.join(words)}"
    return PluginNames(kind, name, distribution, package, _class_name(kind, name))


def _words(name: str) -> list[str]:
    return name.replace("@", "-at-").replace("^", "-hat-").replace("_", "-").split("-")


def _class_name(kind: str, name: str) -> str:
    """Ends with the kind, so that a class can't hide imports of its module: a verifier may be called `score`."""
    class_name = "".join(map(str.capitalize, _words(name)))
    ending = kind.title().replace("_", "")
    return class_name if class_name.endswith(ending) else class_name + ending


def fault_of_distribution(name: str) -> str | None:
    """Why a distribution can't be called so, or None if it can."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", name) or len(name) > MAX_LENGTH:
        return (
            f"{name!r} is not a valid distribution name: "
            f"use at most {MAX_LENGTH} small letters and digits, with single '-' between them"
        )
    if name == "evsys" or name.removeprefix("evsys-") in HOUSE:
        return f"{name} is a distribution of evsys itself; choose another name"
    return None


def fault_of_name(kind: str, name: str) -> str | None:
    """Why a plugin of this kind can't be called so, or None where it can."""
    if not _SHAPE.fullmatch(name):
        return f"{name!r} is not a valid plugin name: {_distribution_name(name)}{_instead(name)}"
    if len(name) > MAX_LENGTH:
        return f"{name!r} is longer than {MAX_LENGTH} characters"
    if name in _NOT_TEXT:
        return f"{name!r} means something else than a string in an experiment file; choose another name"
    if kind != "metric" and _OF_SAMPLES.fullmatch(name):
        return (
            f"{name!r} is a number of samples, as metrics have in their names; choose another for {_a(kind)}"
        )
    short = name.replace("_", "-")
    if short == "evsys" or short.startswith("evsys-"):
        return f"leave out 'evsys' in {name!r}; the distribution's name begins with it anyway"
    if short in HOUSE:
        return f"evsys-{short} is a distribution of evsys itself; choose another name"
    return None


def _distribution_name(name: str) -> str:
    if _SHAPE.fullmatch(name.lower()):
        return "write it in small letters"
    if name[:1].isdigit():
        return "begin it with a letter"
    if re.search("[@^]", name):
        return "'@' and '^' precede a number of samples at the end, as in pass@k or pass^3"
    return "use small letters and digits, with single '-' or '_' between them"


def _instead(name: str) -> str:
    """The closest name that there can be, where there is one."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    close = re.sub(r"[^a-z0-9_]+", "-", apart).strip("-_0123456789")
    return f"; {close!r} is one" if _SHAPE.fullmatch(close) else ""


def _a(kind: str) -> str:
    words = kind.replace("_", " ")
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"
