"""Every task of the project. `nox -s profile` is the main one, `nox -s ci` the one that checks all."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.sessions = ["profile"]
nox.options.reuse_venv = "yes"

ROOT = Path(__file__).parent
HEADERS = ("nvidia-cuda-cupti>=13,<14", "nvidia-cuda-runtime>=13,<14", "nvidia-cuda-crt>=13,<14")
# Builds the workload in CUDA C++ where no toolkit is installed.
NVCC = "nvidia-cuda-nvcc>=13,<14"
TEST_TOOLS = (
    *("hypothesis>=6.90", "nox>=2024.4.15", "py-spy>=0.4", "pyarrow>=15", "pyyaml>=6"),
    *("kubernetes-validate>=1.30", "pytest-xdist>=3.5"),
    *("playwright>=1.40", "axe-playwright-python>=0.1.4"),
)


def install(session: nox.Session, *extra: str) -> None:
    """Install the project, editable; again only when what is compiled or required has changed."""
    sources = [ROOT / "pyproject.toml", *(p for p in sorted((ROOT / "capture").rglob("*")) if p.is_file())]
    digest = hashlib.sha256("".join(extra).encode())
    for path in sources:
        digest.update(path.name.encode() + path.read_bytes())
    stamp = Path(session.virtualenv.location) / "ai-prof.installed"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    session.install("-e", ".[opencl]" if sys.platform == "linux" else ".", *extra)
    stamp.write_text(digest.hexdigest())


def install_dependencies(session: nox.Session, *extra: str) -> None:
    """Install what the project imports: enough to look at its modules, and nothing is compiled for it."""
    session.install(*nox.project.load_toml(ROOT / "pyproject.toml")["project"]["dependencies"], *extra)


def ai_prof(session: nox.Session, *arguments: str) -> None:
    """Run our command and end nox with its own exit code, which `session.run` would turn into 1."""
    # A value of None stands for a variable that nox takes away.
    env = {name: value for name, value in {**os.environ, **session.env}.items() if value is not None}
    command = [str(Path(session.bin) / "ai-prof"), *arguments]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a plain kill ends what we start, too
    code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
    if code:
        raise SystemExit(code)


@nox.session
def profile(session: nox.Session) -> None:
    """Run every workload three times under capture and compare with its baseline."""
    install(session)
    # A developer's first run makes its own baseline; in CI a missing one must be seen.
    record = [] if os.environ.get("CI") else ["--record"]
    ai_prof(session, "gate", *record, *session.posargs)


@nox.session
def baseline(session: nox.Session) -> None:
    """Measure the workloads and store the runs as this machine's baseline."""
    install(session)
    ai_prof(session, "baseline", "refresh", *session.posargs)


@nox.session(name="ai-prof")
def command(session: nox.Session) -> None:
    """Run any other command of ours: `nox -s ai-prof -- doctor`."""
    install(session)
    ai_prof(session, *session.posargs)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check the GitHub workflows: their schema, and what zizmor knows to be unsafe."""
    session.install("check-jsonschema>=0.37,<1", "zizmor==1.32.*")
    files = [str(p) for p in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml")
    session.run("zizmor", "--offline", "--no-progress", ".github/workflows", "action.yml")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of the documentation into build/site; a link that leads nowhere fails it."""
    install_dependencies(session, "mkdocs>=1.6")
    session.run("mkdocs", "build", "--strict", "--quiet", *session.posargs, env={"PYTHONPATH": "harness"})


@nox.session
def init(session: nox.Session) -> None:
    """Run what others install (`ai-prof init`'s noxfile, the action, a release) and CI's sessions; slow."""
    install(session, *TEST_TOOLS)
    session.run(
        "pytest", "-m", "long", "tests/test_init.py", "tests/test_workflow_steps.py", *session.posargs
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Run the Python tests, the whole job on a CPU device among them; `-- -n 0` in one process."""
    install(session, *TEST_TOOLS)
    run_tests(session)


@nox.session
def oldest(session: nox.Session) -> None:
    """Run the same tests with the oldest releases asked for here and there; on Python 3.10 or 3.11."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["opencl"], *TEST_TOOLS]
    bounds = Path(session.create_tmp()) / "oldest.txt"
    bounds.write_text("\n".join(re.sub(r">=([\d.]+)", r"==\1.*", each) for each in asked))
    install(session, "--constraint", str(bounds), *TEST_TOOLS)
    run_tests(session)


def run_tests(session: nox.Session) -> None:
    """Run pytest on what is installed in `session`."""
    env = {"MOCKS_FOLDER": str(build_mocks(session))} if sys.platform == "linux" else {}
    session.run("pytest", "-n", "2", "-m", "not gpu and not long", *session.posargs, env=env)


def build_mocks(session: nox.Session, *more: str) -> Path:
    """Build the mock of CUDA, the programs that `ai-prof attach` is tested on, and `more`; their folder."""
    session.install("cmake>=3.24", "ninja", NVCC, *HEADERS)
    build = ROOT / "build" / "mocks"
    configure(session, build)
    targets = ("attach_target", "cuda_mock", "cupti_mock", *more)
    session.run("cmake", "--build", str(build), "--target", *targets, silent=True)
    return build / "tests" / "mock"


def configure(session: nox.Session, build: Path, *options: str) -> None:
    """Configure the capture library with its tests in the folder `build`."""
    headers = next(Path(session.virtualenv.location).glob("lib/python*/site-packages"))
    session.run(
        "cmake", "-S", "capture", "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
        "-DAI_PROF_BUILD_TESTS=ON", f"-DCMAKE_PREFIX_PATH={headers}", *options,
    )  # fmt: skip


@nox.session
def gpu(session: nox.Session) -> None:
    """Run the tests that need an NVIDIA GPU and PyTorch in the interpreter that PATH finds first."""
    install(session, *TEST_TOOLS)
    session.run("pytest", "-m", "gpu", *session.posargs)


# What judges the sources is held to a release: its next one may see, or lay out, what it did not before.
@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and the direction of imports."""
    session.install("ruff==0.17.*", "clang-format==23.*", "import-linter==2.*")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("clang-format", "--dry-run", "--Werror", *cpp_files())
    session.run("lint-imports", env={"PYTHONPATH": "harness"})


@nox.session
def typecheck(session: nox.Session) -> None:
    """Check types, strictly, as the oldest Python that we promise and the newest see them."""
    # The oldest has tomli in place of tomllib, and can't read the types of NumPy 2.5.
    install_dependencies(session, "mypy==2.4.*", "types-psutil", "tomli>=2.0", "numpy<2.5")
    for version in ("3.10", "3.14"):
        session.run("mypy", "--python-version", version)


def test_native(session: nox.Session, sanitizers: str) -> None:
    """Build the capture library and its tests under `sanitizers`, and run them."""
    session.install("cmake>=3.24", "ninja", *HEADERS)
    build = ROOT / "build" / session.name
    configure(session, build, f"-DAI_PROF_SANITIZE={sanitizers}")
    session.run("cmake", "--build", str(build))
    # ThreadSanitizers before that of GCC 14 give up where the kernel randomizes addresses widely.
    still = ["setarch", "-R"] if sanitizers == "thread" and may_fix_addresses() else []
    # More at once than there are cores: they mostly wait.
    ctest = ["ctest", "--test-dir", str(build), "--output-on-failure", "--no-tests=error", "--parallel", "4"]
    session.run(*still, *ctest, external=True)


@nox.session
def native(session: nox.Session) -> None:
    """Test the capture library under AddressSanitizer and UndefinedBehaviorSanitizer."""
    test_native(session, "address,undefined")


@nox.session(name="native-tsan")
def native_tsan(session: nox.Session) -> None:
    """Test the capture library under ThreadSanitizer."""
    test_native(session, "thread")


@nox.session
def tidy(session: nox.Session) -> None:
    """Look for faults in the capture library with clang-tidy; takes minutes."""
    session.install("cmake>=3.24", "ninja", "clang-tidy==23.*", *HEADERS)
    build = ROOT / "build" / session.name
    headers = next(Path(session.virtualenv.location).glob("lib/python*/site-packages"))
    session.run(
        "cmake", "-S", "capture", "-B", str(build), "-G", "Ninja",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_PREFIX_PATH={headers}",
    )  # fmt: skip
    sources = [path for path in cpp_files() if "/src/" in path and path.endswith(".cpp")]
    session.run("clang-tidy", "-p", str(build), "--quiet", "--warnings-as-errors=*", *sources)


@nox.session
def bench(session: nox.Session) -> None:
    """Print what a capture costs: start-up, iterations, records; launches, on a GPU: docs/overhead.md."""
    install(session, *HEADERS)
    session.run("python", "tests/bench/startup.py")
    mocks = build_mocks(session, "ai_prof", "throughput", "buffer_bench")
    libraries = [mocks.parents[1] / "libai_prof.so", mocks / "libcupti_mock.so", mocks / "libcuda_mock.so"]
    session.run(str(mocks / "throughput"), *map(str, libraries), external=True)
    session.run(str(mocks.parent / "buffer_bench"), external=True)
    session.run("python", "tests/bench/overhead.py", *session.posargs)
    if shutil.which("nvidia-smi"):
        session.run("python", "tests/bench/launch_overhead.py")


@nox.session(name="bench-readers")
def bench_readers(session: nox.Session) -> None:
    """Print how fast traces are read, against HolisticTraceAnalysis, and in how much memory; 5 minutes."""
    install(session)
    hta = Path(session.create_tmp()) / "hta"
    session.run("python", "-m", "venv", str(hta))
    session.run(str(hta / "bin" / "pip"), "install", "-q", "HolisticTraceAnalysis==0.5.0", external=True)
    session.run("python", "tests/bench/readers.py", "--hta", str(hta / "bin" / "python"), *session.posargs)


# The oldest headers that the capture library is compiled against, the usual and the newest.
HEADER_WHEELS = {
    "12.9": (
        "nvidia-cuda-cupti-cu12==12.9.*",
        "nvidia-cuda-runtime-cu12==12.9.*",
        "nvidia-cuda-nvcc-cu12==12.9.*",
    ),
    "13.0": ("nvidia-cuda-cupti==13.0.*", "nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*"),
    "newest": ("nvidia-cuda-cupti", "nvidia-cuda-runtime", "nvidia-cuda-crt"),
}


@nox.session
@nox.parametrize("version", list(HEADER_WHEELS))
def headers(session: nox.Session, version: str) -> None:
    """Compile the capture library against a version of the headers, warnings being errors, and test it."""
    session.install("cmake>=3.24", "ninja")
    build = ROOT / "build" / f"headers-{version}"
    wheels = build / "wheels"
    session.install("--quiet", "--upgrade", "--no-deps", "--target", str(wheels), *HEADER_WHEELS[version])
    found = {name: next(wheels.glob(f"nvidia/*/include/{name}")) for name in ("cupti.h", "cuda.h")}
    crt = next(wheels.glob("nvidia/*/include/crt/host_defines.h")).parents[1]
    session.run(
        "cmake", "-S", "capture", "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
        "-DAI_PROF_BUILD_TESTS=ON", "-DAI_PROF_WERROR=ON", f"-DCMAKE_CXX_FLAGS=-isystem {crt}",
        f"-DCUPTI_INCLUDE_DIR={found['cupti.h'].parent}", f"-DCUDA_INCLUDE_DIR={found['cuda.h'].parent}",
    )  # fmt: skip
    session.run("cmake", "--build", str(build))
    session.run("ctest", "--test-dir", str(build), "--output-on-failure", "-R", "cupti", external=True)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz the reader of capture files for three minutes: `-- -max_total_time=3600` for longer."""
    install(session, "atheris>=3.0")
    session.run("python", "tests/fuzz/native_reader.py", *(session.posargs or ["-max_total_time=180"]))


@nox.session(name="gate-sim")
def gate_sim(session: nox.Session) -> None:
    """Print how often the gate fails simulated builds, without a change and with one; twenty minutes."""
    install(session)
    session.run("python", "tests/bench/gate_sim.py", *session.posargs)


@nox.session
def aa(session: nox.Session) -> None:
    """Gate this code against itself, many times, or draw such builds from recordings: docs/aa.md."""
    install(session)
    session.run("python", "tests/bench/aa.py", *session.posargs)


@nox.session
def faults(session: nox.Session) -> None:
    """Gate every workload with every fault of its own, as far as `-- --minutes 20` go: docs/faults.md."""
    install(session)
    session.run("python", "tests/bench/faults.py", *session.posargs)


@nox.session
def comparison(session: nox.Session) -> None:
    """Write docs/comparison.md anew, from what `bench`, `bench-readers` and peers.py measured."""
    install(session)
    session.run("python", "tests/bench/comparison.py")


@nox.session
def ci(session: nox.Session) -> None:
    """Do all that a change must pass: lint, types, C++ tests, Python tests with the whole job."""
    for name in ("lint", "workflows", "docs", "typecheck", "native", "tests"):
        session.notify(name)


def may_fix_addresses() -> bool:
    """Whether a program can be started without address randomization; some containers forbid it."""
    try:
        return subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def cpp_files() -> list[str]:
    """Every C++ file of the capture library and its benches."""
    found = [path for folder in ("capture", "tests/bench") for path in sorted((ROOT / folder).rglob("*"))]
    return [str(path) for path in found if path.suffix in {".h", ".cpp"}]
