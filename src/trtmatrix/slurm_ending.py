"""Ends what runs on Slurm for an interrupted run: what nobody else follows; and what a dead one left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from trtmatrix.cluster import Cluster
from trtmatrix.effects.shared_clients import Client
from trtmatrix.effects.shared_lock import LockBusy, within
from trtmatrix.slurm_cancelling import Cancelling
from trtmatrix.slurm_images import SlurmImages

WHY = "its client was interrupted"
LOCK_SECONDS = 10.0
"""So long an interrupted run waits for a lock that another client holds, which may itself be stopped."""


@dataclass(kw_only=True)
class Ending:
    """What ends arrays."""

    cluster: Cluster
    client: Client
    images: SlurmImages
    cancelling: Cancelling
    note: Callable[[str], None]

    def end(self, keys: Sequence[str]) -> None:
        """Cancel the arrays that no other living client follows, and return when their jobs are gone."""
        if not keys and not self.images.submitted:
            return
        try:
            with self.cluster.folder.lock(self._is_enough()):
                ours, imports = self._stop(keys)
        except LockBusy as error:  # nobody can be kept from going on with them, but our jobs are to go
            self.note(f"{error}; jobs are cancelled without it")
            ours, imports = self._stop(keys)
        if len(ours) < len(keys):
            self.note(f"{len(keys) - len(ours)} arrays go on: another client follows them")
        self._close(ours, self.cancelling.cancel(ours, imports))

    def _stop(self, keys: Sequence[str]) -> tuple[list[str], set[str]]:
        """Mark what is to be cancelled; returns it: the arrays, which are followed on, and the imports."""
        others = self.client.followed_by_others()
        ours = [key for key in keys if key not in others]
        for key in ours:  # from now on nobody submits anything of them
            self.cluster.folder.stop_array(key, WHY)
        self.client.leave([key for key in keys if key in others])
        return ours, self._imports(ours)

    def _imports(self, ours: Sequence[str]) -> set[str]:
        """Return the imports that were submitted here and that no other open array waits for."""
        folder = self.cluster.folder
        others = [m.key for m in folder.arrays() if m.key not in ours and not folder.stopping(m.key)]
        return set(self.images.submitted.values()) - {s.after for k in others for s in folder.submissions(k)}

    def _close(self, ours: Sequence[str], gone: Sequence[str]) -> None:
        """Close what is surely gone; the rest stays marked, and the next client ends it."""
        try:
            with self.cluster.folder.lock(self._is_enough()):
                for key in gone:
                    self.cluster.folder.close_array(key, WHY)
                self.client.leave(ours)
        except LockBusy as error:
            self.note(f"{error}; the next run closes what was ended")

    def _is_enough(self) -> Callable[[], bool]:
        """Return what tells when the lock is not waited for any longer: soon, or where somebody hurries."""
        late = within(LOCK_SECONDS)
        return lambda: late() or self.cancelling.hurry.is_set()

    def end_left(self) -> None:
        """End the arrays whose client died while it cancelled them: nobody else goes on with that."""
        folder = self.cluster.folder
        with folder.lock():
            others = self.client.followed_by_others()
            left = [m.key for m in folder.arrays() if m.key not in others and folder.stopping(m.key)]
            self.client.follow(left)
        if left:
            self.note(f"ending what an interrupted run left on Slurm: {', '.join(left)}")
            self._close(left, self.cancelling.cancel(left, doubt=self.cancelling.pace.lost))
