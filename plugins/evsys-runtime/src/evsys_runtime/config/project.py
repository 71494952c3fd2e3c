"""A project's own plugins in `src/`, and the registry that holds them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from evsys import Registry, current_registry, use_registry
from evsys._plugins.loading import importing
from evsys.errors import PLUGIN_FAILURES, EvsysError, PluginLoadError
from evsys_runtime.config.root import enclosing_project

__all__ = ["NO_PROJECT", "import_project_code", "project_registry", "spec_of_folder"]

_PACKAGE = "src"

NO_PROJECT = "EVSYS_NO_PROJECT"
"""If this variable is set to anything, no project's code is imported."""


def project_registry() -> Registry:
    """A registry for one project: all installed plugins and what was registered here, but no other project's code."""
    here = current_registry()
    registry = Registry()
    for entry in here.entries():
        if entry.local and not _is_project_module(entry.value.partition(":")[0]):
            registry.register(entry.kind, entry.name, here.get(entry.kind, entry.name))
    return registry


class _Recorder(Registry):
    """Notes what a project's modules register while they are imported."""

    def __init__(self) -> None:
        super().__init__(entry_points=())
        self.made: list[tuple[str, str, Any]] = []

    def register(self, kind: str, name: str, plugin: Any) -> None:
        self.made.append((kind, name, plugin))


class _Projects:
    """The `src` packages of this process: one at a time can be called `src`, the others wait here.

    Module objects and registrations are kept by project, so that a second experiment of a project, and a project
    visited again after another, get the same objects as the first time.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.modules: dict[Path, dict[str, ModuleType]] = {}
        self.registrations: dict[Path, list[tuple[str, str, Any]]] = {}
        self.on_path: str | None = None

    def enter(self, root: Path) -> None:
        """Make `src` mean this project's package."""
        present = {name: module for name, module in sys.modules.items() if _is_project_module(name)}
        owner = _root_of(present.get(_PACKAGE))
        if owner != root:
            if owner is not None:
                self.modules[owner] = present
            for name in present:
                del sys.modules[name]
            sys.modules.update(self.modules.get(root, {}))
        if str(root) not in sys.path:
            if self.on_path in sys.path:
                sys.path.remove(str(self.on_path))
            sys.path.insert(0, str(root))
            self.on_path = str(root)
        invalidate_caches()


_projects = _Projects()


def import_project_code(root: Path, registry: Registry) -> tuple[str, ...]:
    """Import the modules of a project's `src/` as the package `src`, and register their plugins in `registry`.

    The modules are those that a user's own `import src.transforms` gives. Files that start with `_` or `test_` are
    left alone. Without `src/`, and with `EVSYS_NO_PROJECT` set, nothing happens.

    Args:
        root: the project root; it is put on `sys.path`.
        registry: where the registrations go, regardless of the registry of the modules' first import.

    Returns:
        The names of the modules.

    Raises:
        PluginLoadError: a module can't be imported; names file and line.
        PluginConflictError: two plugins of one kind and name.
    """
    root = root.resolve()
    folder = root / _PACKAGE
    if not folder.is_dir() or os.environ.get(NO_PROJECT):
        return ()
    with _projects.lock:
        _projects.enter(root)
        names = (_PACKAGE, *_module_names(folder))
        recorder = _Recorder()
        before = set(sys.modules)
        with use_registry(recorder):
            for name in names:
                if name in sys.modules:
                    continue
                try:
                    with importing(f"{name} of the project {root}"):
                        _import(name, folder)
                except PLUGIN_FAILURES as exc:
                    for added in set(sys.modules) - before:
                        if _is_project_module(added):
                            del sys.modules[added]
                    raise _load_error(exc, name, root) from exc
        made = _projects.registrations.setdefault(root, [])
        made += recorder.made
        for kind, name, plugin in [*made, *_registered_by_the_user()]:
            registry.register(kind, name, plugin)
    return names


def _module_names(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        is_module = path.suffix == ".py" or (path / "__init__.py").is_file()
        private = path.name.startswith(("_", "test_")) or path.stem == "conftest"
        if is_module and not private and path.stem.isidentifier():
            yield f"{_PACKAGE}.{path.stem}"


def spec_of_folder(folder: Path) -> ModuleSpec | None:
    """How to import `src` of the project that a folder is in; None outside projects, and for a project without `src`."""
    root = enclosing_project(folder)
    return _spec_of(root / _PACKAGE) if root is not None and (root / _PACKAGE).is_dir() else None


def _spec_of(folder: Path) -> ModuleSpec:
    """Made by hand, because a folder without __init__.py would lose to any other `src` on the path."""
    init = folder / "__init__.py"
    if not init.is_file():
        spec = ModuleSpec(_PACKAGE, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec
    found = spec_from_file_location(_PACKAGE, init, submodule_search_locations=[str(folder)])
    if found is None:
        raise ImportError(f"{init} can't be imported")
    return found


def _import(name: str, folder: Path) -> None:
    if name != _PACKAGE:
        import_module(name)
        return
    spec = _spec_of(folder)
    module = sys.modules[_PACKAGE] = module_from_spec(spec)
    if spec.loader is not None:
        spec.loader.exec_module(module)


def _is_project_module(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def _root_of(module: ModuleType | None) -> Path | None:
    """The project that a loaded `src` package belongs to."""
    places = list(getattr(module, "__path__", ()))
    return Path(places[0]).resolve().parent if places else None


def _registered_by_the_user() -> Iterator[tuple[str, str, Any]]:
    """Plugins that these modules registered when the user's own code imported them, before any experiment was read."""
    here = current_registry()
    for entry in here.entries():
        module, _, qualname = entry.value.partition(":")
        if entry.local and _is_project_module(module) and module in sys.modules:
            plugin = here.get(entry.kind, entry.name)
            if getattr(sys.modules[module], qualname, None) is plugin:
                yield entry.kind, entry.name, plugin


def _load_error(exc: BaseException, name: str, root: Path) -> EvsysError:
    if isinstance(exc, EvsysError) and not isinstance(exc, PluginLoadError):
        return exc
    place = _place(exc, root)
    hint = "correct it, or remove the file from src/"
    if isinstance(exc, ModuleNotFoundError) and exc.name and not _is_project_module(exc.name):
        hint = f"install what it needs: pip install {exc.name.partition('.')[0]}"
    message = f"{place or name}: the project's code can't be imported: {type(exc).__name__}: {exc}"
    return PluginLoadError(message, hint=hint, module=name)


def _place(exc: BaseException, root: Path) -> str | None:
    """The file and line of the project at which an import failed."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{exc.filename}:{exc.lineno}"
    place = None
    trace = exc.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if file.startswith(str(root)):
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
