"""The manifests under deploy/, against the schema of Kubernetes and through kustomize where that is there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
validator = pytest.importorskip("kubernetes_validate")

DEPLOY = Path(__file__).parent.parent / "deploy"
SIDECAR = DEPLOY / "kubernetes" / "sidecar"
VERSION = "1.30"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  selector: {matchLabels: {app: train}}
  template:
    metadata: {labels: {app: train}}
    spec:
      containers: [{name: train, image: job, volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: data, emptyDir: {}}]
"""


def validate(document: dict[str, Any]) -> None:
    """Unknown fields are errors, as with `kubectl apply --validate=strict`."""
    validator.validate(document, VERSION, strict=True)


def can_attach(spec: dict[str, Any]) -> dict[str, Any]:
    """The sidecar of a pod, which has what attaching needs."""
    assert spec["shareProcessNamespace"] is True
    (sidecar,) = (each for each in spec["containers"] if each["name"] == "ai-prof")
    assert sidecar["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE"]
    assert "privileged" not in sidecar["securityContext"]
    mounts = {mount["name"] for mount in sidecar["volumeMounts"]}
    assert mounts <= {volume["name"] for volume in spec["volumes"]}
    return sidecar


@pytest.mark.parametrize("path", sorted((DEPLOY / "kubernetes").glob("*.yaml")), ids=lambda path: path.name)
def test_the_manifests_are_of_the_schema(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        validate(document)


def test_the_schema_finds_a_wrong_field() -> None:
    wrong = yaml.safe_load(WORKLOAD)
    wrong["spec"]["template"]["spec"]["shareProcessNamespaces"] = True
    with pytest.raises(validator.ValidationError):
        validate(wrong)


def test_the_pod_can_attach() -> None:
    can_attach(yaml.safe_load((DEPLOY / "kubernetes/pod.yaml").read_text())["spec"])


def test_the_component_appends_the_sidecar() -> None:
    """What the two patches say, applied by hand."""
    workload = yaml.safe_load(WORKLOAD)
    (addition,) = yaml.safe_load((SIDECAR / "container.yaml").read_text())
    assert (addition["op"], addition["path"]) == ("add", "/spec/template/spec/containers/-")
    spec = workload["spec"]["template"]["spec"]
    spec["containers"].append(addition["value"])
    pod = yaml.safe_load((SIDECAR / "pod.yaml").read_text())["spec"]["template"]["spec"]
    spec |= {**pod, "volumes": spec["volumes"] + pod["volumes"]}
    validate(workload)
    can_attach(spec)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to render with")
def test_kustomize_adds_the_sidecar(tmp_path: Path) -> None:
    shutil.copytree(SIDECAR, tmp_path / "sidecar")
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    (tmp_path / "kustomization.yaml").write_text("resources: [workload.yaml]\ncomponents: [sidecar]\n")
    words = ["kubectl", "kustomize", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rendered = yaml.safe_load(done.stdout)
    validate(rendered)
    spec = rendered["spec"]["template"]["spec"]
    assert [each["name"] for each in spec["containers"]] == ["train", "ai-prof"]
    assert spec["containers"][0] == yaml.safe_load(WORKLOAD)["spec"]["template"]["spec"]["containers"][0]
    assert {volume["name"] for volume in spec["volumes"]} == {"data", "ai-prof-captures"}
    can_attach(spec)


def test_the_image_is_built_from_what_the_wheel_needs() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    root = DEPLOY.parent
    assert {"capture", "harness", "pyproject.toml"} <= kept
    assert all((root / name).exists() for name in kept)
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "ai-prof[stacks]" in dockerfile
    assert 'ENTRYPOINT ["ai-prof"]' in dockerfile
