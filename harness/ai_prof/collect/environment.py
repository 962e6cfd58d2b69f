"""The environment that starts a program under capture."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from ai_prof.collect.autostart import add_injection, library_path
from ai_prof.errors import EnvironmentInvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LEVELS = ("kernel", "api")


def native_library() -> str:
    """The path of this installation's native library. Raises EnvironmentInvalidError where it has none."""
    library = library_path()
    if library is None:
        raise EnvironmentInvalidError(
            "this installation has no native capture library: install ai-prof on Linux with a C++ compiler"
        )
    return library


def capture_environment(
    output: Path, level: str, base: Mapping[str, str], options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """`base` plus all that makes a program started with it record into the folder `output`.

    The user's other AI_PROF_* variables stand; `options` are further ones. Raises EnvironmentInvalidError
    where this installation has no native library or another tool holds CUDA's injection.
    """
    env = dict(base)
    foreign = add_injection(env, native_library())
    if foreign:
        msg = f"CUDA_INJECTION64_PATH already names {foreign}: unset it, then start the capture again"
        raise EnvironmentInvalidError(msg)
    env |= {
        "AI_PROF_ENABLE": "1",
        "AI_PROF_OUTPUT": str(output.resolve()),
        "AI_PROF_LEVEL": level,
        "AI_PROF_CAPTURE_ID": secrets.token_hex(8),
    }
    return env | dict(options or {})
