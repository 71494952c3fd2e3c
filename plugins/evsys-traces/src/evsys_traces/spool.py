"""The last state of each conversation, and the feedback on it, in a temporary database: memory does not grow with a log."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

import attrs

from evsys_traces.formats.genai import call_of
from evsys_traces.items import Event, Judgement, Span
from evsys_traces.trace import Call, Feedback, LeftOut

__all__ = ["Spool"]

DUPLICATE = "the same call as an earlier one"
SUPERSEDED = "an earlier state of a conversation"
WITHOUT_CONTENT = "without content: capturing it was off"

_TABLES = """
create table thread (key text primary key, hash blob, time real, row text, place integer);
create table prefix (hash blob, thread text, answers integer);
create table link (id text, thread text, hash blob, answers integer);
create table feedback (id text, value text);
create table span (id text, value text);
create table event (span text, value text);
"""
_INDEXES = """
create index by_prefix on prefix (hash);
create index by_link on link (id);
create index by_span on event (span);
"""


class Spool:
    """Takes the calls, judgements, spans and events of a log in any order, and gives the conversations.

    A thread is what a conversation with an id says after its first message of the user; of a thread the latest
    call stays. A call without an id of its conversation goes if another one continues it, word for word.

    Attributes:
        left_out: how many calls went, by reason.
        feedback_unmatched: judgements of calls that are not in the log.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="evsys-traces-")
        self._db = sqlite3.connect(Path(self._folder.name) / "spool.sqlite", isolation_level=None)
        self._db.executescript(f"pragma journal_mode = off; pragma synchronous = off; {_TABLES} begin;")
        self._count = 0
        self.left_out: Counter[str] = Counter()
        self.feedback_unmatched = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()
        self._folder.cleanup()

    def add(self, item: Call | Judgement | Span | Event) -> None:
        """Take one item of the log."""
        match item:
            case Call():
                self._add_call(item)
            case Judgement():
                self._judge(item.ids, item.feedback)
            case Span():
                self._db.execute("insert into span values (?, ?)", (item.span_id, _text(attrs.asdict(item))))
            case Event():
                self._db.execute("insert into event values (?, ?)", (item.span_id, _text(attrs.asdict(item))))

    def _judge(self, ids: Iterable[str], feedback: Feedback) -> None:
        self._db.executemany(
            "insert into feedback values (?, ?)", [(each, _text(feedback.tree())) for each in list(ids)[:1]]
        )

    def _add_call(self, call: Call) -> None:
        prefixes = list(call.prefixes())
        whole, answers = prefixes[-1], call.answers
        named = call.conversation is not None
        key = f"{call.conversation}\0{call.opening()}" if named else whole.hex()
        self._count += 1
        if not self._keep_latest(key, whole, call):
            return
        if not named:
            earlier = [(prefix, key, place + 1) for place, prefix in enumerate(prefixes[:-1])]
            self._db.executemany("insert into prefix values (?, ?, ?)", earlier)
        own = f"\0{self._count}"
        links = [(each, key, whole, answers) for each in (*call.ids, own)]
        self._db.executemany("insert into link values (?, ?, ?, ?)", links)
        for feedback in call.feedback:
            self._judge((own,), feedback)

    def _keep_latest(self, key: str, whole: bytes, call: Call) -> bool:
        """False if the very same call is there already."""
        known = self._db.execute("select hash, time from thread where key = ?", (key,)).fetchone()
        if known is not None:
            same = known[0] == whole
            self.left_out[DUPLICATE if same else SUPERSEDED] += 1
            if same:
                return False
            if call.time is not None and known[1] is not None and call.time < known[1]:
                return True
        self._db.execute(
            "insert or replace into thread values (?, ?, ?, ?, ?)",
            (key, whole, call.time, _text(call.row()), self._count),
        )
        return True

    def rows(self) -> Iterator[dict[str, Any]]:
        """The conversations in the order of the log, each with the feedback on any of its answers."""
        self._db.executescript(_INDEXES)
        self._complete_spans()
        self._drop_continued()
        self._match_feedback()
        with closing(self._db.execute("select key, row from thread order by place")) as found:
            for key, text in found:
                row = json.loads(text)
                feedback = list(self._feedback_on(key))
                if feedback:
                    row["metadata"]["feedback"] = feedback
                yield row

    def _complete_spans(self) -> None:
        with closing(self._db.cursor()) as cursor:
            for (text,) in cursor.execute("select value from span").fetchall():
                span = Span(**json.loads(text))
                found = self._db.execute("select value from event where span = ?", (span.span_id,)).fetchall()
                if not found:
                    self.left_out[WITHOUT_CONTENT] += 1
                    continue
                try:
                    self._add_call(call_of(span, [Event(**json.loads(each)) for (each,) in found]))
                except LeftOut as exc:
                    self.left_out[str(exc)] += 1

    def _drop_continued(self) -> None:
        """Calls without a conversation's id that another one continues; their feedback goes to that one."""
        dropped = self._db.execute(
            "delete from thread where instr(key, char(0)) = 0 and hash in (select hash from prefix)"
        ).rowcount
        if dropped:
            self.left_out[SUPERSEDED] += dropped
            self._db.execute(
                "update link set thread = coalesce((select prefix.thread from prefix join thread on thread.key = prefix.thread"
                " where prefix.hash = link.hash limit 1), thread)"
            )

    def _match_feedback(self) -> None:
        self._db.executescript(
            "create table judged as select link.thread, max(link.answers) as answers, feedback.value, feedback.rowid as place"
            " from feedback join link on link.id = feedback.id group by feedback.rowid;"
            " create index by_thread on judged (thread);"
        )
        [(self.feedback_unmatched,)] = self._db.execute(
            "select count(*) from feedback where id not in (select id from link)"
        ).fetchall()

    def _feedback_on(self, key: str) -> Iterator[Mapping[str, Any]]:
        for text, answers in self._db.execute(
            "select value, answers from judged where thread = ? order by place", (key,)
        ):
            yield {**json.loads(text), "answer": answers}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
