#!/usr/bin/env bash
# Installs the carried wheels on a machine that has torch and no network, runs the GPU tests, and prints what a
# capture costs. From the repository's root, with dist/ai_prof-*.whl and .whl/ (wheels of missing dependencies):
#   bash tests/gpu/check_h200.sh [PYTEST ARGUMENT...]
# ROUNDS=20 makes the figures of what it costs those of docs/overhead.md; five minutes then.
# What it prints and the junit report also go to $OUT.
set -u
OUT=${OUT:-$(mktemp -d)}
PYTHON=${PYTHON:-python3}
export PIP_BREAK_SYSTEM_PACKAGES=1  # the machine is bare and goes away

install() {
  local missing=()
  "$PYTHON" -m pip install --quiet --no-index --no-deps --force-reinstall dist/ai_prof-*.whl || return 1
  # What reading a capture and running its tests need; the rest of ai-prof's dependencies may stay away.
  for module in numpy msgspec pytest; do
    "$PYTHON" -c "import $module" 2>/dev/null || missing+=("$module")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    "$PYTHON" -m pip install --quiet --no-index --find-links .whl "${missing[@]}" || return 1
  fi
}

if ! install; then
  echo "not installed: dist/ or .whl/ lacks a wheel (see above)" >&2
  exit 2
fi
if ! "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  echo "$PYTHON has no torch that sees a GPU: name another with PYTHON=" >&2
  exit 3
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$PYTHON" -m pytest tests/gpu -m gpu -p no:cacheprovider --junitxml="$OUT/gpu.xml" "$@" 2>&1 | tee "$OUT/gpu.txt"
code=${PIPESTATUS[0]}
"$PYTHON" tests/bench/launch_overhead.py --rounds "${ROUNDS:-3}" --output "$OUT/overhead.md"
exit "$code"
