"""What a number in our own files may be: whoever reads one as these types refuses any other.

Wide enough for all that is ever measured, and narrow enough for sums, products and plots of them.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Count = Annotated[int, Meta(ge=0, le=1 << 62)]
Number = Annotated[float, Meta(ge=-1e30, le=1e30)]
Amount = Annotated[float, Meta(ge=0, le=1e30)]
"""A number that is not negative: a time, a size."""
Positive = Annotated[float, Meta(ge=1e-30, le=1e30)]
Chance = Annotated[float, Meta(ge=0, le=1)]
