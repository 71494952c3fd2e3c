"""Keys and values of prompts' beginnings, kept from one call to the next while their weights can still be sampled.

The cache holds whole chunks of tokens, each computed by itself after the chunks before it, so always in the same
shapes: a chunk has the same bits whether it is computed now or was kept, and regardless of other requests. A result
then depends on the request, never on the contents of the cache.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from evsys_backend_local.engine.arrays import Array
from evsys_backend_local.engine.limits import PREFIX_CACHE_MB
from evsys_backend_local.engine.packing import IntArray
from evsys_backend_local.engine.trainable import Snapshot

#: Tokens of a chunk: fewer are reused more finely, more are multiplied faster.
CHUNK = 64


@attrs.frozen
class Key:
    """Names a chunk: whose weights, how it was computed, and all tokens up to its end.

    Attributes:
        name: number of the snapshot.
        threads: BLAS threads that multiplied; another number may give other bits.
        prefix: digest of the tokens.
    """

    name: int
    threads: int
    prefix: bytes


def digests(tokens: IntArray, chunk: int) -> list[bytes]:
    """One digest for each whole chunk that ends before the last token, of all tokens up to the chunk's end."""
    found: list[bytes] = []
    before = b""
    for start in range(0, (len(tokens) - 1) // chunk * chunk, chunk):
        own = np.asarray(tokens[start : start + chunk], "<i8").tobytes()
        before = hashlib.blake2b(before + own, digest_size=16).digest()
        found.append(before)
    return found


class PrefixCache:
    """Chunks by key; those used longest ago make room. For any threads.

    Args:
        limit: most bytes; 0 keeps nothing.
        chunk: tokens of a chunk. Results depend on it in the last bits.
    """

    def __init__(self, limit: int = PREFIX_CACHE_MB << 20, chunk: int = CHUNK) -> None:
        self.limit = limit
        self.chunk = chunk
        self._lock = threading.Lock()
        self._chunks: OrderedDict[Key, Array] = OrderedDict()
        self._bytes = 0
        self._computing: dict[Key, threading.Event] = {}
        self._names: weakref.WeakKeyDictionary[Snapshot, int] = weakref.WeakKeyDictionary()
        self._named = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._bytes

    def name(self, snapshot: Snapshot) -> int:
        """The number under which the chunks of a snapshot are kept."""
        with self._lock:
            name = self._names.get(snapshot)
            if name is None:
                self._named += 1
                name = self._names[snapshot] = self._named
            return name

    def forget(self, snapshot: Snapshot) -> None:
        """Let go of what is kept for a snapshot that won't be sampled any more."""
        with self._lock:
            name = self._names.pop(snapshot, None)
            self._drop([key for key in self._chunks if key.name == name])

    def clear(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._drop(list(self._chunks))

    def get(self, key: Key, compute: Callable[[], Array]) -> Array:
        """The chunk, computed if it isn't kept; who wants it while another thread computes it waits for that."""
        while True:
            with self._lock:
                kept = self._chunks.get(key)
                if kept is not None:
                    return kept
                other = self._computing.get(key)
                if other is None:
                    mine = self._computing[key] = threading.Event()
                    break
            other.wait()
        try:
            made = compute()
            self._keep(key, made)
        finally:
            with self._lock:
                del self._computing[key]
            mine.set()
        return made

    def touch(self, path: Sequence[Key]) -> None:
        """Note that chunks were used now. A later one is useless without those before it, so it makes room first."""
        with self._lock:
            for key in reversed(path):
                if key in self._chunks:
                    self._chunks.move_to_end(key)

    def _keep(self, key: Key, chunk: Array) -> None:
        with self._lock:
            if self._bytes + chunk.nbytes > self.limit:
                alive = set(self._names.values())
                self._drop([old for old in self._chunks if old.name not in alive])
            while self._chunks and self._bytes + chunk.nbytes > self.limit:
                self._drop([next(iter(self._chunks))])
            if chunk.nbytes <= self.limit:
                self._chunks[key] = chunk
                self._bytes += chunk.nbytes

    def _drop(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self._bytes -= self._chunks.pop(key).nbytes
