"""Numbers and quantities as people and models write them, read exactly: `1,234.5`, `1 234 567`, `-3/4`, `1 1/2`, `6.02 × 10^23`,
`2.4 million`, `5 km/h`.

Every value is a fraction, so that 0.1 is a tenth, and no size of a number changes what is equal to what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from evsys_verifiers_std.units import Unit, leading_unit, parse_unit

__all__ = ["Expected", "Quantity", "exact", "expected_quantities", "quantities_in"]

type Mark = Literal[".", ","]

MOST_DIGITS = 1_000
MOST_EXPONENT = 1_000
MOST_BITS = 100_000
"""Beyond these a text is not a number that anyone wrote on purpose, and exact arithmetic would take long."""


class Quantity(NamedTuple):
    """A number in a text; None as its value is a number out of bounds. `unit` is the one that follows, `rest` the text after."""

    value: Fraction | None
    unit: Unit | None
    rest: str


class Expected(NamedTuple):
    """The right answer: a number with a known unit, with a word that counts things (`words`), or without either."""

    value: Fraction
    unit: Unit | None = None
    words: str | None = None


_LATEX: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"\\(?:text|textrm|textbf|mathrm|mathbf|mbox|operatorname) ?\{([^{}]*)\}", r" \1"),
        (r"(?<=\d) ?(?=\\[dt]?frac)", " "),
        (r"\\[dt]?frac ?\{ ?([^{} ]*) ?\} ?\{ ?([^{} ]*) ?\}", r"\1/\2 "),
        (r"\\[dt]?frac ?(\d) ?(\d)", r"\1/\2 "),
        (r"\{,\}", ","),
        (r"\\(?:[,;:! ]|quad(?![a-z]))|~", " "),
        (r" ?\^ ?\{? ?\\circ ?\}?", "°"),
        (r"\\times(?![a-zA-Z])", "×"),
        (r"\\cdot(?![a-zA-Z])", "·"),
        (r"\\([%$])", r"\1"),
    )
)

_SCALES = {
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "k": 10**3,
    "m": 10**6,
    "mn": 10**6,
    "b": 10**9,
    "bn": 10**9,
}
_SCALE_WORD = re.compile(r"[\s-]?(thousand|million|billion|trillion)s?\b", re.IGNORECASE)
_SCALE_LETTER = re.compile(r"([kK]|M|B|[Mm]n|[Bb]n)\b")

_REST = 200
"""Characters after a number looked at for its unit."""

_MINUS = "\u2212\ufe63\uff0d-"
_SIGN = rf"[+{_MINUS}]"
_VULGAR = {ord(one): f" {normalize('NFKC', one).replace(chr(0x2044), '/')}" for one in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_RAISED = r"[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]"
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


@lru_cache(maxsize=2)
def _pattern(mark: Mark) -> re.Pattern[str]:
    """The pattern of a number with this decimal mark; groups of three digits may be parted by the other mark.

    `odd` and `chain` are what makes a date, a version or a number in another notation of it.
    """
    part = rf"[{',' if mark == '.' else '.'}_'’\u00a0\u2009\u202f]"
    point = re.escape(mark)
    # `**` joins two numbers only where both stand alike; elsewhere it is a bold word of Markdown.
    power = rf"(?:\ ?\^\ ?|\*\*(?=\S)|\ \*\*\ )\{{{{?\ ?({{name}}{_SIGN}?\d+)\ ?\}}}}?|({{raised}}{_RAISED}+)"

    def decimal(name: str) -> str:
        # A plain space groups digits from two groups on: `5 100` may be two numbers.
        spaced = r"\d{1,3}(?:\ \d{3}){2,}(?!\d)"
        grouped = rf"{spaced}|\d{{1,3}}(?P<{name}>{part})\d{{3}}(?:(?P={name})\d{{3}})*(?!\d)"
        return rf"(?:(?:{grouped}|\d+)(?:{point}\d+)?|{point}\d+)"

    def raised(name: str) -> str:
        return power.format(name=f"?P<{name}>", raised=f"?P<{name}_small>")

    return re.compile(
        rf"""
        (?<!\w)(?<!\d[.,])
        (?P<sign>(?<![\w)]){_SIGN}|(?<=[=≈(\[]){_SIGN}\s|(?<=[=≈]\s){_SIGN}\s)?
        (?P<money>[$€£¥]\s?)?
        (?P<inner>[{_MINUS}])?
        (?:(?P<mixed>\d{{1,3}})\ (?=\d+/\d))?
        (?P<number>{decimal("p1")})
        (?P<odd>(?:[.,]\d+)+)?
        (?:
          \ ?/\ ?(?P<below>{decimal("p2")})(?P<chain>\ ?/\ ?\d+)?
        | [eE](?P<exponent>[+-]?\d+)(?!\w)
        | \s?[×x*·]\s?10(?:{raised("ten")})
        | {raised("power")}
        )?
        """,
        re.VERBOSE,
    )


def quantities_in(text: str, mark: Mark = ".") -> Iterator[Quantity]:
    """Every number in a text, in order, each with the unit that follows it. A number inside a unit (`m/s^2`) isn't one.

    Args:
        text: prose or LaTeX.
        mark: the decimal mark.
    """
    for pattern, plain in _LATEX:
        text = pattern.sub(plain, text)
    text = text.translate(_VULGAR)
    place = 0
    while match := _pattern(mark).search(text, place):
        value, end = _value(match, mark), match.end()
        scale = _scale(match, text[end : end + _REST])
        if scale is not None:
            value = None if value is None else value * scale[0]
            end += scale[1]
        rest = text[end : end + _REST]
        found = leading_unit(rest)
        yield Quantity(value, found[0] if found else None, rest.lstrip())
        place = end + (found[1] if found else 0)


def _scale(match: re.Match[str], rest: str) -> tuple[int, int] | None:
    """The power of ten that a word or letter after a number represents, and its length; None if there is none.

    A letter counts if it touches the number and is not a unit (`5K` are kelvins), or if the number is an amount of money.
    """
    if (word := _SCALE_WORD.match(rest)) is not None:
        return _SCALES[word[1].lower()], word.end()
    letter = _SCALE_LETTER.match(rest)
    if letter is None or (parse_unit(letter[1]) is not None and match["money"] is None):
        return None
    return _SCALES[letter[1].lower()], letter.end()


def _value(match: re.Match[str], mark: Mark) -> Fraction | None:
    if match["odd"] or match["chain"]:
        return None
    value = _decimal(match["number"], mark)
    if value is not None and match["below"] is not None:
        value = _fraction(value, match, mark)
    for name, ten in (
        ("exponent", True),
        ("ten", True),
        ("ten_small", True),
        ("power", False),
        ("power_small", False),
    ):
        if value is not None and match[name]:
            value = _raise_to(value, match[name], ten=ten)
    negative = [sign for sign in (match["sign"], match["inner"]) if sign and sign.strip() in _MINUS]
    return -value if value is not None and len(negative) == 1 else value


def _fraction(above: Fraction, match: re.Match[str], mark: Mark) -> Fraction | None:
    below = _decimal(match["below"], mark)
    whole = _decimal(match["mixed"] or "0", mark)
    return whole + above / below if below and whole is not None else None


def _decimal(text: str, mark: Mark) -> Fraction | None:
    """The digits of a number as a fraction; None for too many of them."""
    if len(text) > MOST_DIGITS:
        return None
    digits = re.sub(rf"[^\d{re.escape(mark)}]", "", text).replace(mark, ".")
    try:
        return Fraction(Decimal(digits))
    except InvalidOperation:  # a digit of some script that isn't one of ten
        return None


def _raise_to(value: Fraction, exponent: str, *, ten: bool) -> Fraction | None:
    """`value` to a power, or with `ten` times a power of ten; None beyond all bounds."""
    exponent = exponent.translate(_SUPERSCRIPTS)
    for minus in _MINUS:
        exponent = exponent.replace(minus, "-")
    if len(exponent) > len(str(MOST_EXPONENT)) + 1 or not re.fullmatch(r"[+-]?\d+", exponent):
        return None
    power = int(exponent)
    if abs(power) > MOST_EXPONENT:
        return None
    if ten:
        return value * Fraction(10) ** power
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    return value**power if bits * abs(power) <= MOST_BITS and (value or power >= 0) else None


def expected_quantities(expected: Any, mark: Mark = ".") -> list[Expected]:
    """The right answers: a number, a text such as `5 km`, `{value, unit}`, or a list of those.

    Raises:
        ValueError: there is no number, or more than one, or one that isn't finite.
    """
    values = list(expected) if isinstance(expected, list | tuple) else [expected]
    if not values:
        raise ValueError("`expected` is an empty list; give at least one number")
    return [_parse_expected(value, mark) for value in values]


def exact(number: float) -> Fraction:
    """A float by its shortest text: 0.1 represents a tenth, not for the nearest binary fraction.

    Raises:
        ValueError: it isn't finite.
        OverflowError: it isn't finite.
    """
    return Fraction(Decimal(repr(number)))


def _parse_expected(value: Any, mark: Mark) -> Expected:
    if isinstance(value, Mapping):
        if not value.keys() <= {"value", "unit"} or "value" not in value:
            raise ValueError(f"`expected` is {dict(value)!r}; an object has `value` and, if need be, `unit`")
        unit = value.get("unit")
        if unit is not None and not (isinstance(unit, str) and unit.strip()):
            raise ValueError(f"`expected` has the unit {unit!r}, which is not a string")
        return _with_unit(_parse_expected(value["value"], mark), unit)
    if isinstance(value, str):
        return _from_text(value, mark)
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"`expected` is {value!r}; give a number, or a string with one"
        raise ValueError(message)  # noqa: TRY004 - every unusable expectation is a ValueError
    try:
        return Expected(exact(value))
    except (ValueError, OverflowError) as exc:
        raise ValueError(f"`expected` is {value!r}, which is not a finite number") from exc


def _from_text(text: str, mark: Mark) -> Expected:
    found = list(quantities_in(text, mark))
    if len(found) != 1 or found[0].value is None:
        raise ValueError(f"`expected` is {text!r}, which holds {len(found)} numbers instead of one")
    return _with_unit(Expected(found[0].value), found[0].rest.strip(" $.") or None)


def _with_unit(expected: Expected, unit: str | None) -> Expected:
    if unit is None:
        return expected
    if expected.unit is not None or expected.words is not None:
        raise ValueError(f"`expected` has two units, one of them {unit!r}")
    known = parse_unit(unit)
    return Expected(expected.value, known, None if known else " ".join(unit.split()))
