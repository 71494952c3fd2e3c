"""Copies the plugin to where a host looks for it, and takes exactly that away again.

A receipt among the copied files has the hash of each, so that files of others and edits of the user are never overwritten or
deleted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from evsys.errors import StoreError
from evsys_agents.hosts import Entry, Layout
from evsys_record import make_directory, write_atomic

__all__ = ["Installed", "find_copy", "install", "uninstall"]

FORMAT = 1


@attrs.frozen(kw_only=True)
class Installed:
    """The plugin at one place: what was written, what was left alone because somebody else wrote it, and what is missing.

    `state` is `current`, `outdated`, `incomplete` (files are missing) or `absent`; `version` that of the copy.
    """

    state: str
    version: str | None = None
    files: int = 0
    kept: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@attrs.define(kw_only=True)
class _Receipt:
    version: str
    hosts: list[str]
    files: dict[str, str]
    entries: list[dict[str, Any]]
    folders: list[str]


def install(layout: Layout, host: str, version: str) -> Installed:
    """Copy the plugin, or bring an older copy up to date. Edited files, and those of others, stay as they are.

    Raises:
        StoreError: a file can't be written, or a file of the host isn't the JSON document that it has to be.
    """
    before = _read_receipt(layout)
    receipt = _Receipt(version=version, hosts=[], files={}, entries=[], folders=[])
    if before is not None:
        receipt.hosts, receipt.folders, receipt.entries = before.hosts, before.folders, before.entries
    receipt.hosts = sorted({*receipt.hosts, host})
    ours = {} if before is None else before.files
    kept = []
    for name, content in layout.files.items():
        path = layout.base / name
        found = _hash(path)
        if found is not None and found not in (ours.get(name), _digest(content)):
            kept.append(name)
            if name in ours:
                receipt.files[name] = ours[name]
            continue
        _make_folder(path.parent, layout.base, receipt)
        if found != _digest(content):
            write_atomic(path, content.decode("utf-8"))
        receipt.files[name] = _digest(content)
    for name in ours.keys() - layout.files.keys():
        _delete(layout.base / name, ours[name])
    for entry in layout.entries:
        _add(entry, layout.base, receipt, host)
    write_atomic(
        layout.base / layout.receipt, json.dumps({"format": FORMAT, **attrs.asdict(receipt)}, indent=2) + "\n"
    )
    return Installed(state="current", version=version, files=len(receipt.files), kept=tuple(sorted(kept)))


def uninstall(layout: Layout, host: str) -> Installed:
    """Delete the copied files that are as they were copied, and the host's entries; the others are named.

    Files that another host uses as well stay until it gives them up.
    """
    receipt = _read_receipt(layout)
    if receipt is None or host not in receipt.hosts:
        return Installed(state="absent")
    for added in [each for each in receipt.entries if each["host"] == host]:
        _remove(added, layout.base)
        receipt.entries.remove(added)
    receipt.hosts.remove(host)
    if receipt.hosts:
        write_atomic(
            layout.base / layout.receipt,
            json.dumps({"format": FORMAT, **attrs.asdict(receipt)}, indent=2) + "\n",
        )
        return Installed(state="absent", version=receipt.version)
    kept = [name for name, digest in receipt.files.items() if not _delete(layout.base / name, digest)]
    (layout.base / layout.receipt).unlink()
    for folder in sorted(receipt.folders, key=len, reverse=True):
        path = layout.base / folder
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    return Installed(state="absent", version=receipt.version, kept=tuple(sorted(kept)))


def find_copy(layout: Layout, host: str, version: str) -> Installed:
    """Whether the plugin is there and current, without a change to anything."""
    receipt = _read_receipt(layout)
    if receipt is None or host not in receipt.hosts:
        return Installed(state="absent")
    found = {name: _hash(layout.base / name) for name in receipt.files}
    missing = tuple(sorted(name for name, digest in found.items() if digest is None))
    kept = tuple(sorted(name for name, digest in found.items() if digest not in (None, receipt.files[name])))
    wanted = {name: _digest(content) for name, content in layout.files.items()}
    state = "incomplete" if missing else "current" if receipt.files == wanted else "outdated"
    if state == "current" and receipt.version != version:
        state = "outdated"
    return Installed(state=state, version=receipt.version, files=len(found), kept=kept, missing=missing)


def _read_receipt(layout: Layout) -> _Receipt | None:
    path = layout.base / layout.receipt
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        names = attrs.fields_dict(_Receipt)
        return _Receipt(**{name: tree[name] for name in names})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise StoreError(
            f"{path} isn't a receipt of evsys agent install ({type(exc).__name__}: {exc})",
            hint="delete the copied plugin folder, and install it again",
        ) from exc


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _hash(path: Path) -> str | None:
    """The hash of a file; that of nothing we wrote for a link or a folder in its place; None if nothing is there."""
    if path.is_symlink() or path.is_dir():
        return "other"
    try:
        return _digest(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise StoreError(f"{path} can't be read: {exc.strerror}") from exc


def _delete(path: Path, digest: str) -> bool:
    """Delete a file that is as it was written; True if it is gone."""
    found = _hash(path)
    if found == digest:
        path.unlink()
    return found in (None, digest)


def _make_folder(folder: Path, base: Path, receipt: _Receipt) -> None:
    missing = list(_missing(folder, base))
    make_directory(folder)
    receipt.folders += [name for name in missing if name not in receipt.folders]


def _missing(folder: Path, base: Path) -> Iterator[str]:
    """The folders below the base that don't exist yet."""
    while folder != base and not folder.exists():
        yield folder.relative_to(base).as_posix()
        folder = folder.parent


# --- entries in files of the host -----------------------------------------------------------------------------------------


def _add(entry: Entry, base: Path, receipt: _Receipt, host: str) -> None:
    """Add a value to a file of the host, unless it is there."""
    path = base / entry.file
    document = _document(path)
    created = document is None
    document = dict(entry.document) if document is None else document
    holder: Any = document
    for name in entry.path[:-1]:
        holder = holder.setdefault(name, {})
        if not isinstance(holder, dict):
            raise _unusable(path, name, "an object")
    last = entry.path[-1]
    if entry.listed:
        values = holder.setdefault(last, [])
        if not isinstance(values, list):
            raise _unusable(path, last, "a list")
        if entry.value in values:
            return
        values.append(entry.value)
    else:
        if last in holder:
            return
        holder[last] = entry.value
    _make_folder(path.parent, base, receipt)
    write_atomic(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    created = created or any(each["file"] == entry.file and each["created"] for each in receipt.entries)
    receipt.entries.append(
        {
            "host": host,
            "file": entry.file,
            "path": list(entry.path),
            "value": entry.value,
            "listed": entry.listed,
            "created": created,
            "document": dict(entry.document),
        }
    )


def _remove(added: dict[str, Any], base: Path) -> None:
    """Take an added value out again if it is as it was added; a file that held nothing else goes as well."""
    path = base / added["file"]
    document = _document(path)
    if document is None:
        return
    *way, last = added["path"]
    holders: list[Any] = [document]
    for name in way:
        if not isinstance(holders[-1].get(name), dict):
            return
        holders.append(holders[-1][name])
    holder = holders[-1]
    if added["listed"]:
        if not isinstance(holder.get(last), list) or added["value"] not in holder[last]:
            return
        holder[last].remove(added["value"])
        if not holder[last]:
            del holder[last]
    elif holder.get(last) == added["value"]:
        del holder[last]
    else:
        return
    for outer, name in zip(reversed(holders[:-1]), reversed(way), strict=True):
        if not outer[name]:
            del outer[name]
    if added["created"] and document in (added["document"], {}):
        path.unlink()
    else:
        write_atomic(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _document(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise StoreError(f"{path} can't be read: {exc}") from exc
    try:
        tree = json.loads(text)
    except ValueError as exc:
        raise StoreError(
            f"{path} isn't valid JSON ({exc}), so the entry of evsys can't be changed there",
            hint="correct the file",
        ) from exc
    if not isinstance(tree, dict):
        raise _unusable(path, "the document", "an object")
    return tree


def _unusable(path: Path, what: str, expected: str) -> StoreError:
    return StoreError(f"{path}: {what} isn't {expected}", hint="correct the file, or move it away")
