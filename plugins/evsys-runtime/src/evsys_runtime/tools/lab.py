"""The project that a tool works in, and its experiments on record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import attrs

from evsys.errors import ConfigError
from evsys_record.experiment_names import experiment_called, folder_called
from evsys_record.files import project_of
from evsys_record.index import Index
from evsys_runtime.config.root import enclosing_project

__all__ = ["Lab", "open_index"]

_EXPERIMENTS = Path(".evsys") / "experiments"


@contextmanager
def open_index(experiments: Path) -> Iterator[Index]:
    """The index of a folder of experiments, brought up to date."""
    with Index(experiments) as index:
        index.refresh()
        yield index


@attrs.frozen(kw_only=True, eq=False)
class Lab:
    """Where files and experiments are looked for.

    Attributes:
        root: relative paths start from it.
        experiments: the folder of all experiments; it need not exist.
        confined: refuse files and records outside `root` and `experiments`, for callers that aren't the user.
        opened: opens the index of a folder of experiments.
    """

    root: Path
    experiments: Path
    confined: bool = False
    opened: Callable[[Path], AbstractContextManager[Index]] = open_index

    @classmethod
    def of_project(cls, folder: Path) -> Lab:
        """The project that a folder is in, or the folder itself; nothing outside it can be named."""
        root = (enclosing_project(folder.absolute()) or folder).resolve()
        return cls(root=root, experiments=root / _EXPERIMENTS, confined=True)

    @property
    def project(self) -> Path:
        """The project of the experiments."""
        return project_of(self.experiments)

    def index(self) -> AbstractContextManager[Index]:
        """The index of the experiments."""
        return self.opened(self.experiments)

    @contextmanager
    def experiment(self, text: str) -> Iterator[tuple[Index, str, str | None]]:
        """The index, and the experiment ID and the run (or other text after a `/`) that `text` names.

        Raises:
            ConfigError: no experiment, or several, are called so.
        """
        place = None if self.confined else folder_called(text)
        if place is None:
            name, _, named = text.partition("/")
            with self.index() as index:
                yield index, experiment_called(name, index), named or None
        else:
            folder, run = place
            with self.opened(folder.parent) as index:
                yield index, folder.name, run

    def file(self, name: str | Path) -> Path:
        """The path of a file of the project.

        Raises:
            ConfigError: it is outside the project, and the caller may not name such a file.
        """
        path = self.root / name
        if self.confined and not path.resolve().is_relative_to(self.root):
            raise ConfigError(
                f"{name} is outside the project {self.root}", hint="name a file by its path from there"
            )
        return path if self.confined else Path(name)
