"""The pages as one HTML file that needs no server: styles, scripts and answers are inside of it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["page"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_HEAD = re.compile(r"    <link rel=\"stylesheet\".*</script>\n", re.DOTALL)


def page(answers: Mapping[str, Any], title: str) -> str:
    """An HTML file that shows the pages of saved answers.

    Args:
        answers: by the address below `/api/v1` that they answer; `features` lists the parts of the pages that they suffice for.
        title: of the file.
    """
    # "<" as an escape, so that nothing inside of a text can end the element that holds it
    saved = json.dumps(answers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    styles = "".join(_text(name) for name in ("vendor/uPlot.min.css", "style.css"))
    scripts = [_text("vendor/uPlot.min.js"), _bundle("app")]
    policy = (
        f"default-src 'none'; style-src {_source(styles)}; script-src {' '.join(map(_source, scripts))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        f'    <meta http-equiv="Content-Security-Policy" content="{policy}">\n    <style>{styles}</style>\n'
    )
    html = _HEAD.sub(lambda _: head, _text("index.html")).replace(
        "<title>evsys</title>", f"<title>{_escaped(title)}</title>"
    )
    body = [
        f'    <script type="application/json" id="saved-answers">{saved}</script>\n',
        *(f"    <script>{script}</script>\n" for script in scripts),
    ]
    before, end, after = html.partition("  </body>")
    return before + "".join(body) + end + after


@cache
def _bundle(name: str) -> str:
    """The modules that a module needs, and itself, as one script: browsers load no module from a file."""
    order: list[str] = []
    _collect(name, order)
    return f"(() => {{\n{''.join(map(_as_object, order))}}})();\n"


def _collect(name: str, order: list[str]) -> None:
    for _, needed in _IMPORT.findall(_text(f"{name}.js")):
        _collect(needed, order)
    if name not in order:
        order.append(name)


def _as_object(name: str) -> str:
    """A module as an object of its exports, in a scope of its own."""
    source = _text(f"{name}.js")
    exported = ", ".join(found[1] for found in _EXPORT.findall(source))
    source = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = ${found[2]};", source)
    source = _EXPORT.sub(lambda found: f"{found[1]} {found[2]}", source)
    return f"const ${name} = (() => {{\n{source}\nreturn {{ {exported} }};\n}})();\n"


@cache
def _text(name: str) -> str:
    text = files("evsys_dashboard.pages").joinpath(*name.split("/")).read_text(encoding="utf-8")
    return text.replace("</script", "<\\/script") if name.endswith(".js") else text


def _source(text: str) -> str:
    """The name of an element with this text in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
