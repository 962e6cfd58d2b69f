"""The records of one type of a capture file, column by column, without a copy of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Rows = npt.NDArray[np.void]
"""Records as one array of their dtype: for tables that are small."""


@dataclass(frozen=True, slots=True)
class Records:
    """The rows of some blocks, in order; `kept` flags those that count, (rows in the blocks,), or is None."""

    dtype: np.dtype[np.void]
    blocks: Sequence[Rows] = ()
    kept: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return sum(map(len, self.blocks)) if self.kept is None else int(self.kept.sum())

    def __getitem__(self, field: str) -> npt.NDArray[Any]:
        """A copy of one column, (n, ...)."""
        column = np.concatenate([np.zeros(0, self.dtype)[field], *(block[field] for block in self.blocks)])
        return column if self.kept is None else column[self.kept]

    def rows(self) -> Rows:
        """A copy of all columns."""
        whole = np.concatenate([np.zeros(0, self.dtype), *self.blocks])
        return whole if self.kept is None else whole[self.kept]

    def only(self, kept: npt.NDArray[np.bool_]) -> Records:
        """Those rows alone that are flagged, (n,)."""
        return self if kept.all() else Records(self.dtype, self.blocks, kept)
