"""Units of measurement: what a text such as `km/h` means in terms of base units, exactly.

Factors are those of the SI brochure (BIPM, 9th edition) and of the international yard and pound. Celsius, Fahrenheit,
degrees and radians are units of their own: they aren't factors of others, or not rational ones. Months and years have no
fixed length, and aren't here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

__all__ = ["Unit", "leading_unit", "parse_unit"]


class Unit(NamedTuple):
    """`factor` base units; `dimensions` has the exponent of each base unit, sorted by name."""

    factor: Fraction
    dimensions: tuple[tuple[str, int], ...]

    def times(self, other: Unit, power: int) -> Unit:
        """This unit times a power of another."""
        exponents = dict(self.dimensions)
        for base, exponent in other.dimensions:
            exponents[base] = exponents.get(base, 0) + power * exponent
        kept = tuple(sorted((base, exponent) for base, exponent in exponents.items() if exponent))
        return Unit(self.factor * other.factor**power, kept)


ONE = Unit(Fraction(1), ())
_MOST_POWER = 6


def _unit(factor: str, **dimensions: int) -> Unit:
    return Unit(Fraction(factor), tuple(sorted(dimensions.items())))


_PREFIXES: Mapping[str, tuple[str, int]] = {
    "Q": ("quetta", 30), "R": ("ronna", 27), "Y": ("yotta", 24), "Z": ("zetta", 21), "E": ("exa", 18),
    "P": ("peta", 15), "T": ("tera", 12), "G": ("giga", 9), "M": ("mega", 6), "k": ("kilo", 3), "h": ("hecto", 2),
    "da": ("deca", 1), "d": ("deci", -1), "c": ("centi", -2), "m": ("milli", -3), "µ": ("micro", -6),
    "μ": ("micro", -6), "u": ("micro", -6), "n": ("nano", -9), "p": ("pico", -12), "f": ("femto", -15),
    "a": ("atto", -18),
}  # fmt: skip

_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}

# symbols and names of units that take prefixes
_PREFIXED: Mapping[str, tuple[str, Unit]] = {
    "m": ("metre meter", _unit("1", m=1)),
    "g": ("gram gramme", _unit("1", g=1)),
    "s": ("second sec", _unit("1", s=1)),
    "A": ("ampere amp", _unit("1", A=1)),
    "K": ("kelvin", _unit("1", K=1)),
    "mol": ("mole", _unit("1", mol=1)),
    "Hz": ("hertz", _unit("1", s=-1)),
    "N": ("newton", _unit("1000", g=1, m=1, s=-2)),
    "Pa": ("pascal", _unit("1000", g=1, m=-1, s=-2)),
    "J": ("joule", _unit("1000", g=1, m=2, s=-2)),
    "W": ("watt", _unit("1000", g=1, m=2, s=-3)),
    "V": ("volt", _unit("1000", g=1, m=2, s=-3, A=-1)),
    "Ω": ("ohm", _unit("1000", g=1, m=2, s=-3, A=-2)),
    "C": ("coulomb", _unit("1", A=1, s=1)),
    "L": ("litre liter", _unit("1/1000", m=3)),
    "l": ("", _unit("1/1000", m=3)),
    "t": ("tonne", _unit("1000000", g=1)),
    "Wh": ("", _unit("3600000", g=1, m=2, s=-2)),
    "cal": ("calorie", _unit("4184", g=1, m=2, s=-2)),
    "eV": ("electronvolt", _unit("1.602176634e-16", g=1, m=2, s=-2)),
    "bar": ("", _unit("100000000", g=1, m=-1, s=-2)),
    "B": ("byte", _unit("8", bit=1)),
    "bit": ("", _unit("1", bit=1)),
}

_PLAIN: Mapping[str, Unit] = {
    **dict.fromkeys(["min", "minute"], _unit("60", s=1)),
    **dict.fromkeys(["h", "hr", "hour"], _unit("3600", s=1)),
    **dict.fromkeys(["d", "day"], _unit("86400", s=1)),
    "week": _unit("604800", s=1),
    **dict.fromkeys(["in", "inch", "inches"], _unit("0.0254", m=1)),
    **dict.fromkeys(["ft", "foot", "feet"], _unit("0.3048", m=1)),
    **dict.fromkeys(["yd", "yard"], _unit("0.9144", m=1)),
    **dict.fromkeys(["mi", "mile"], _unit("1609.344", m=1)),
    **dict.fromkeys(["lb", "lbs", "pound"], _unit("453.59237", g=1)),
    **dict.fromkeys(["oz", "ounce"], _unit("28.349523125", g=1)),
    **dict.fromkeys(["ha", "hectare"], _unit("10000", m=2)),
    "atm": _unit("101325000", g=1, m=-1, s=-2),
    "mph": _unit("0.44704", m=1, s=-1),
    "kph": _unit("5/18", m=1, s=-1),
    "cc": _unit("1/1000000", m=3),
    **dict.fromkeys(["%", "percent", "pct"], _unit("1/100")),
    **dict.fromkeys(["‰", "permille"], _unit("1/1000")),
    **dict.fromkeys(["°", "deg", "degree"], _unit("1", degree=1)),
    **dict.fromkeys(["rad", "radian"], _unit("1", radian=1)),
    **dict.fromkeys(["°C", "celsius", "degree celsius", "degrees celsius"], _unit("1", celsius=1)),
    **dict.fromkeys(
        ["°F", "fahrenheit", "degree fahrenheit", "degrees fahrenheit"], _unit("1", fahrenheit=1)
    ),
}

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_WORDS = {"square": 2, "sq": 2, "cubic": 3}
_ENGLISH = frozenset({"am", "as", "at", "in", "pm"})
"""Words of a sentence rather than factors of a unit, unless a sign joins them to it; only `in` is a unit at all."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<power>(?:\^|\*\*)\s*(?:\{\s*)?[-\u2212]?\d{1,2}(?:\s*\})?|[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+)
    | (?P<times>\*|·|⋅|×)
    | (?P<over>/|per\b)
    | (?P<name>°\s?[CF]\b|[°%‰]|degrees?\ (?:celsius|fahrenheit)\b|[a-zµμΩ]+)(?P<digits>-?\d)?
    )""",
    re.VERBOSE | re.IGNORECASE,
)


@lru_cache(maxsize=1)
def _table() -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Symbols, whose case matters, and names, whose case doesn't."""
    symbols, names = {}, {}
    for symbol, (words, unit) in _PREFIXED.items():
        symbols[symbol] = unit
        for prefix, (_, power) in _PREFIXES.items():
            symbols[prefix + symbol] = ONE.times(Unit(Fraction(10) ** power, ()), 1).times(unit, 1)
        for word in words.split():
            names[word] = names[f"{word}s"] = unit
            for prefix, power in _PREFIXES.values():
                names[prefix + word] = names[f"{prefix}{word}s"] = Unit(Fraction(10) ** power, ()).times(
                    unit, 1
                )
    for prefix, power in _BINARY.items():
        symbols[f"{prefix}B"] = Unit(Fraction(1024) ** power, ()).times(symbols["B"], 1)
    for name, unit in _PLAIN.items():
        symbols[name] = unit
        if len(name) > 2:
            names[name] = names[f"{name}s"] = unit
    names |= {"bits": symbols["bit"], "hertz": symbols["Hz"]}
    for word in _ENGLISH - _PLAIN.keys():
        del symbols[word]
    return symbols, names


def _unit_called(name: str) -> Unit | None:
    symbols, names = _table()
    compact = name.replace(" ", "").upper() if name.startswith("°") else name
    return symbols.get(compact) or names.get(name.casefold())


class _Factor(NamedTuple):
    """A unit in an expression up to `end`, raised to `power`."""

    unit: Unit
    power: int
    end: int


def leading_unit(text: str) -> tuple[Unit, int] | None:
    """The longest unit that `text` starts with, and where it ends; None if there isn't one.

    Factors are next to each other or have a sign between them, as in `kg*m^2/s^2`, `kWh`, `miles per hour`, `m³`;
    each `/` divides by the one factor after it. Parentheses aren't read.
    """
    unit, end = ONE, 0
    for factor in _factors(text):
        unit, end = unit.times(factor.unit, factor.power), factor.end
    return (unit, end) if end else None


def _factors(text: str) -> Iterator[_Factor]:
    """The factors at the start of a text, up to the first exception."""
    place, sign, raised, joined = 0, 1, 1, True
    while match := _TOKEN.match(text, place):
        place = match.end()
        if match["over"] or match["times"]:
            sign, joined = (-1 if match["over"] else sign), True
            continue
        name = match["name"]
        if name is None or (name in _ENGLISH and not joined):
            return  # a power of nothing, or the sentence that continues
        if name.casefold() in _WORDS and raised == 1:
            raised = _WORDS[name.casefold()]
            continue
        unit = _unit_called(name)
        if unit is None:
            return
        power, place = _power(text, match, place)
        if power is None:
            return
        yield _Factor(unit, sign * raised * power, place)
        sign, raised, joined = 1, 1, False


def _power(text: str, match: re.Match[str], place: int) -> tuple[int | None, int]:
    """The power of the unit just read, None for one that makes no sense, and where it ends."""
    if match["digits"]:
        power = int(match["digits"])
    else:
        after = _TOKEN.match(text, place)
        if after is None or not after["power"]:
            return 1, place
        place = after.end()
        written = after["power"].translate(_SUPERSCRIPTS).replace("\u2212", "-")
        digits = re.search(r"-?\d+", written)
        power = int(digits[0]) if digits else 0
    return (power if 0 < abs(power) <= _MOST_POWER else None), place


@lru_cache(maxsize=256)
def parse_unit(text: str) -> Unit | None:
    """The unit that a whole text is; None where it isn't one."""
    found = leading_unit(text.strip())
    return found[0] if found is not None and found[1] == len(text.strip()) else None
