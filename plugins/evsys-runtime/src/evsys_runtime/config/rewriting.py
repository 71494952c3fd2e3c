"""An experiment file with some of its values changed: its comments, order and spelling stay."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any

from evsys.errors import ConfigError
from evsys_runtime.config import overrides as overrides_
from evsys_runtime.config import trees
from evsys_runtime.config.document import Document, loads
from evsys_runtime.config.paths import Segment
from evsys_runtime.config.report import Report

__all__ = ["rewrite"]

_WIDTH = 4096
"""Columns before a line is folded, which would change how a text reads."""

_UNPRINTABLE = re.compile("[\x7f-\x9f\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that JSON takes as they are, and YAML only escaped."""


def rewrite(document: Document, overrides: Sequence[str]) -> str:
    """The text of a file in which each override is set, as `evsys run --set` would set it.

    Comments and the order of keys are kept. Values that YAML aliases share are written out wherever they occur, without
    comments, since a change to one of them would change all.

    Args:
        document: the file.
        overrides: `path=value` texts; later ones win.

    Raises:
        ConfigError: an override can't be set; names each.
    """
    report = Report()
    wanted = overrides_.apply(document, overrides, report)
    report.raise_if_any()
    for text in (_edit_text(document, wanted.tree), _serialize(wanted.tree)):
        if text is not None and _reads_as(text, wanted.tree):
            return text
    return _UNPRINTABLE.sub(_escape, json.dumps(wanted.tree, ensure_ascii=False, indent=2)) + "\n"


def _reads_as(text: str, wanted: Any) -> bool:
    """Whether a written file means these values; a key with a control character may come out as no YAML at all."""
    try:
        return _same(loads(text).tree, wanted)
    except ConfigError:
        return False


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _same(one: Any, other: Any) -> bool:
    return trees.canonical(one) == trees.canonical(other)


def _edit_text(document: Document, wanted: Any) -> str | None:
    """The text with the changed values put in their places; None where values are shared."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = _WIDTH
    try:
        tree = yaml.load(document.text)
        _put_differences(tree, document.tree, wanted, ())
        stream = io.StringIO()
        yaml.dump(tree, stream)
    except (YAMLError, KeyError, TypeError, AttributeError):  # written anew instead
        return None
    return stream.getvalue()


def _put_differences(node: Any, before: Any, wanted: Any, path: tuple[Segment, ...]) -> None:
    """Change, in a parsed file, what differs between two trees; lists of other lengths are replaced."""
    pairs = wanted.items() if isinstance(wanted, dict) else enumerate(wanted)
    for key, value in pairs:
        old = before[key] if isinstance(before, list) or key in before else trees.MISSING
        if old is not trees.MISSING and _same(old, value):
            continue
        alike = isinstance(value, dict) and isinstance(old, dict)
        alike = alike or (isinstance(value, list) and isinstance(old, list) and len(old) == len(value))
        if alike:
            _put_differences(node[key], old, value, (*path, key))
        else:
            node[key] = value


def _serialize(tree: Any) -> str:
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = _WIDTH
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # ruamel types it as None
    stream = io.StringIO()
    yaml.dump(tree, stream)
    return stream.getvalue()
