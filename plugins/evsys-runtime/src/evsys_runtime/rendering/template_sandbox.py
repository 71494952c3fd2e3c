"""The sandbox in which chat templates run: they come with models from elsewhere, so time and memory are bounded.

Python's internals are out of reach by jinja2's own sandbox. The bounds are ours: every operation that grows a text
or a list is measured before it is done, only filters that can be bounded exist, and each loop, macro and block
looks at the clock. Everything else takes time and memory in proportion to the template's length.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jinja2

__all__ = ["FILTERS", "MAX_CHARACTERS", "MAX_SECONDS", "MAX_SOURCE", "deadline", "environment"]

MAX_SECONDS = 10.0
"""Longest time of one rendering."""

MAX_CHARACTERS = 4_000_000
"""Longest text that a rendering makes, be it on the way."""

MAX_SOURCE = 1_000_000
MAX_REPEATED = 100_000
MAX_ITEMS = 400_000
MAX_NUMBER_BITS = 4096
MAX_INDENT = 16

FILTERS = (
    "abs attr batch capitalize count d default dictsort e escape first float format indent int items join last length list lower map "
    "max min reject rejectattr replace reverse round safe select selectattr slice sort string sum title tojson trim unique upper"
).split()
_FORBIDDEN_METHODS = frozenset({"format", "format_map", "translate", "maketrans", "encode"})
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\*|\d{4,})")

_until: ContextVar[float] = ContextVar("_until", default=float("inf"))


@contextmanager
def deadline(seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Bound the time of the templates rendered inside."""
    token = _until.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def _fail(message: str) -> Any:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _tick(*_: Any) -> str:
    if time.monotonic() > _until.get():
        _fail(f"not rendered within {MAX_SECONDS:g} seconds")
    return ""


def _concat_texts(*parts: Any) -> str:
    """The operator `~`."""
    if sum(map(_weight, parts)) > MAX_CHARACTERS:
        _fail(f"a string of more than {MAX_CHARACTERS} characters")
    return "".join(map(str, parts))


def _weight(value: Any) -> int:
    """Characters and items in a value, those of shared parts each time they occur, as they would be written."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, list | tuple | set | frozenset | Mapping):
        return 1
    total = items = 0
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, Mapping):
            waiting += part.keys()
            waiting += part.values()
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        items += 1
        if items + len(waiting) > MAX_ITEMS:
            _fail(f"a value of more than {MAX_ITEMS} items")
    return total + items


def _check_size(name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Refuse a call of a filter, a method (`.name`) or a function whose result might be large."""
    _tick()
    values = (*arguments, *named.values())
    if sum(map(_weight, values)) > MAX_CHARACTERS:
        _fail(f"{name} of more than {MAX_CHARACTERS} characters")
    if name not in _NUMERIC and any(isinstance(value, int) and abs(value) > MAX_REPEATED for value in values):
        _fail(f"{name} with a number beyond {MAX_REPEATED}")
    growth = _GROWTH.get(name)
    if growth is not None and growth(*arguments, **named) > MAX_CHARACTERS:
        _fail(f"{name} makes more than {MAX_CHARACTERS} characters")


_NUMERIC = frozenset(
    {"abs", "d", "default", "float", "format", "int", "max", "min", "round", "string", "sum"}
)
"""Filters whose result isn't longer for a larger number."""


def _replaced(text: Any = "", old: Any = "", new: Any = "", *_: Any, **__: Any) -> int:
    found = str(text).count(str(old)) if old else len(str(text)) + 1
    return found * len(str(new))


def _joined(value: Any = "", d: Any = "", *_: Any, **__: Any) -> int:
    return len(str(d)) * (len(value) if hasattr(value, "__len__") else MAX_REPEATED)


def _join_size(separator: str = "", value: Any = "", *_: Any) -> int:
    return _joined(value, separator)


def _formatted(pattern: Any = "", *values: Any, **named: Any) -> int:
    _check_operation("%", str(pattern), named or values)
    return 0


def _expanded(text: str = "", tabsize: int = 8, *_: Any) -> int:
    return text.count("\t") * tabsize


def _indented(text: Any = "", width: Any = 4, *_: Any, **__: Any) -> int:
    return (str(text).count("\n") + 1) * (len(width) if isinstance(width, str) else width)


_GROWTH: Mapping[str, Callable[..., int]] = {
    "replace": _replaced,
    ".replace": _replaced,
    "join": _joined,
    ".join": _join_size,
    ".expandtabs": _expanded,
    "format": _formatted,
    "indent": _indented,
}
"""Characters that a call adds to what it is given, at most."""


def _bounded_filter(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    # jinja2 marks filters that want its context, environment or evaluation context as their first argument.
    passes = getattr(original, "jinja_pass_arg", None) is not None

    @functools.wraps(original)
    def bounded(*arguments: Any, **named: Any) -> Any:
        _check_size(name, arguments[1:] if passes else arguments, named)
        return original(*arguments, **named)

    return bounded


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no escaping for HTML, characters of all scripts as they are."""
    if indent is not None and (len(indent) if isinstance(indent, str) else indent) > MAX_INDENT:
        _fail(f"tojson with an indentation beyond {MAX_INDENT}")
    if separators is not None and sum(map(len, separators)) > MAX_INDENT:
        _fail(f"tojson with separators beyond {MAX_INDENT} characters")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@functools.lru_cache(maxsize=1)
def _start_time() -> datetime:
    return datetime.now(UTC)


def _strftime_now(pattern: str) -> str:
    """Today's date for templates that show it: one moment a process, so training and sampling see the same text."""
    if len(pattern) > 200:
        _fail("strftime_now with a pattern of more than 200 characters")
    return _start_time().strftime(pattern)


@runtime_checkable
class Peekable(Protocol):
    """Items of a loop that know the next one without taking it."""

    def peek(self, missing: Any) -> Any:
        """The item after the one that the loop has reached, or `missing`."""


@functools.lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The environment that compiles and renders chat templates."""
    from jinja2 import Template, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.runtime import LoopContext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import missing

    class Loop(LoopContext):
        """Asks items that have `peek` for the next one, where jinja2 would take it early for `loop.last`."""

        def _peek_next(self) -> Any:
            items = self._iterable
            return items.peek(missing) if isinstance(items, Peekable) else super()._peek_next()

    class LoopingTemplate(Template):
        @classmethod
        def from_code(cls, *arguments: Any, **named: Any) -> Template:
            template = super().from_code(*arguments, **named)
            template.root_render_func.__globals__["LoopContext"] = Loop
            return template

    class GenerationTag(Extension):
        """`{% generation %}...{% endgeneration %}` marks what an assistant wrote; the text inside is kept as it is."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as a plain class attribute

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Bounded(ImmutableSandboxedEnvironment):
        template_class = LoopingTemplate
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        tick = staticmethod(_tick)
        concat_texts = staticmethod(_concat_texts)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            _check_operation(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as jinja2 has it
            owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "a call")
            if name in _FORBIDDEN_METHODS:  # jinja2 wraps str.format, so it has no owner here
                _fail(f"the method {name} isn't available in chat templates")
            if isinstance(owner, str | list | tuple | Mapping):
                _check_size(f".{name}", (owner, *args), kwargs)
            elif __obj is not _tick and __obj is not _concat_texts:
                _check_size(name, args, kwargs)
            return super().call(__context, __obj, *args, **kwargs)

        def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
            if len(source) > MAX_SOURCE:
                _fail(f"a template of more than {MAX_SOURCE} characters")
            return _instrument(super()._parse(source, name, filename), nodes)

    found = Bounded(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationTag, loopcontrols],
        optimized=False,  # or constants such as 'a' ~ 'b' would be computed, however large, while it compiles
        finalize=_finalize,
    )
    found.filters = {name: _bounded_filter(name, found.filters[name]) for name in FILTERS if name != "tojson"}
    found.filters["tojson"] = _bounded_filter("tojson", _tojson)
    found.globals = {name: found.globals[name] for name in ("range", "dict", "namespace", "cycler", "joiner")}
    found.globals["raise_exception"] = _fail
    found.globals["strftime_now"] = _strftime_now
    return found


def _finalize(value: Any) -> Any:
    """The output of `{{ value }}`; nested lists that share their parts are refused before they become text."""
    if not isinstance(value, str | int | float):
        _weight(value)
    return value


def _check_operation(operator: str, left: Any, right: Any) -> None:
    sizes = [len(value) for value in (left, right) if isinstance(value, str | list | tuple)]
    times = [value for value in (left, right) if isinstance(value, int)]
    if operator == "+" and sum(sizes) > MAX_CHARACTERS:
        _fail(f"a value of more than {MAX_CHARACTERS} characters")
    if operator == "*":
        if sizes and times and sizes[0] * times[0] > MAX_REPEATED:
            _fail(f"repetition beyond {MAX_REPEATED} items")
        if len(times) == 2 and sum(value.bit_length() for value in times) > MAX_NUMBER_BITS:
            _fail(f"a number of more than {MAX_NUMBER_BITS} bits")
    if operator == "**" and any(abs(value) > 64 for value in times):
        _fail("power of numbers beyond 64")
    if operator == "%" and isinstance(left, str):
        if _WIDE.search(left):
            _fail("a format with a width beyond 999")
        if len(left) + left.count("%") * _weight(right) > MAX_CHARACTERS:
            _fail(f"a string of more than {MAX_CHARACTERS} characters")


def _instrument(tree: jinja2.nodes.Template, nodes: Any) -> jinja2.nodes.Template:
    """The template with a look at the clock wherever it can repeat itself, and with `~` measured."""
    for node in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.Block)):
        look = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None, lineno=node.lineno)
        node.body.insert(0, nodes.ExprStmt(look, lineno=node.lineno))
    _measure_concats(tree, nodes)
    environment_of = tree.environment
    assert environment_of is not None
    tree.set_environment(environment_of)
    return tree


def _measure_concats(node: Any, nodes: Any) -> None:
    for field, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, field, [_measured_concat(item, nodes) for item in value])
        else:
            setattr(node, field, _measured_concat(value, nodes))


def _measured_concat(value: Any, nodes: Any) -> Any:
    if not isinstance(value, nodes.Node):
        return value
    _measure_concats(value, nodes)
    if isinstance(value, nodes.Concat):
        concat = nodes.EnvironmentAttribute("concat_texts", lineno=value.lineno)
        return nodes.Call(concat, value.nodes, [], None, None, lineno=value.lineno)
    return value
