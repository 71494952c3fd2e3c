"""Transforms with one fault each."""


class Mutates:
    def __call__(self, rows):
        for row in rows:
            row["tags"].append("seen")
            yield dict(row)


class Remembers:
    def __init__(self):
        self._seen = set()

    def __call__(self, rows):
        for row in rows:
            if row["text"] not in self._seen:
                self._seen.add(row["text"])
                yield row


class NeedsRows:
    def __call__(self, rows):
        rows = list(rows)
        assert rows[0] is not None
        yield from rows


class GivesPairs:
    def __call__(self, rows):
        for row in rows:
            yield tuple(row.items())


class LosesColumns:
    def __call__(self, rows):
        for row in rows:
            yield {"text": row["text"]}


class NeedsAColumn:
    def __call__(self, rows):
        for row in rows:
            yield {**row, "text": row["question"]}


class CountsFirst:
    def __call__(self, rows):
        total = len(rows)
        return [{**row, "of": total} for row in rows]


class ReadsTwice:
    def __call__(self, rows):
        longest = max((len(row["text"]) for row in rows), default=0)
        return [{**row, "longest": longest} for row in rows]
