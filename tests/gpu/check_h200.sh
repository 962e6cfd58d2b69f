#!/usr/bin/env bash
# Installs the carried wheels on a machine that has torch and no network, runs the GPU tests, and prints what a
# capture costs. From the repository's root, with dist/ai_prof-*.whl and .whl/ (wheels of missing dependencies):
#   bash tests/gpu/check_h200.sh [PYTEST ARGUMENT...]
# What it prints and the junit report also go to $OUT.
set -u
OUT=${OUT:-$(mktemp -d)}
PYTHON=${PYTHON:-python3}

install() {
  local missing=()
  "$PYTHON" -m pip install --quiet --no-index --no-deps --force-reinstall dist/ai_prof-*.whl || return 1
  for pair in msgspec:msgspec rich:rich numpy:numpy scipy:scipy jinja2:jinja2 psutil:psutil pynvml:nvidia-ml-py \
    pytest:pytest pytest_benchmark:pytest-benchmark; do
    "$PYTHON" -c "import ${pair%%:*}" 2>/dev/null || missing+=("${pair##*:}")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    "$PYTHON" -m pip install --quiet --no-index --find-links .whl "${missing[@]}" || return 1
  fi
}

if ! install; then
  echo "not installed: dist/ or .whl/ lacks a wheel (see above)" >&2
  exit 2
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
"$PYTHON" -m pytest tests/gpu -m gpu -p no:cacheprovider --junitxml="$OUT/gpu.xml" "$@" 2>&1 | tee "$OUT/gpu.txt"
code=${PIPESTATUS[0]}
"$PYTHON" tests/gpu/launch_cost.py 3 2>&1 | tee "$OUT/launch_cost.txt"
exit "$code"
