"""The chart, rendered by helm: `make package-test`."""

import re
import shutil

import pytest

from roots import CACHE, ENVIRONMENT, ROOT, run

HELM = "helm.sh/helm/v3/cmd/helm@v3.18.6"
CHART = ROOT / "deploy/helm/dibs"


@pytest.fixture(scope="module", name="helm")
def _helm():
    """Whatever is installed, else Go builds it."""
    there = shutil.which("helm", path=f"{CACHE}/bin:/usr/local/bin:/usr/bin")
    if there is None:
        run(["go", "install", HELM], env={**ENVIRONMENT, "GOBIN": f"{CACHE}/bin",
                                         "PATH": f"/usr/local/go/bin:{ENVIRONMENT['PATH']}"})
        there = f"{CACHE}/bin/helm"
    return there


def test_chart__is_in_order_and_has_its_parts(helm):
    run([helm, "lint", "--strict", CHART])
    rendered = run([helm, "template", "shop", CHART, "--set", "serviceMonitor.enabled=true"])
    kinds = sorted(re.findall(r"(?m)^kind: (\w+)$", rendered))
    assert kinds == ["Deployment"] * 2 + ["PodDisruptionBudget"] * 2 + ["Service"] * 2 + [
        "ServiceMonitor"]
    assert rendered.count("livenessProbe:") == rendered.count("readinessProbe:") == 2
    # Secrets come by reference: nothing but the name of a file is said of them.
    assert "DIBS_ADMIN_TOKEN_FILE" in rendered and "DIBS_ADMIN_TOKEN," not in rendered
    known = re.findall(r"(?m)^\| `(?:DIBS_)?(\w+)` \|", (ROOT / "docs/configuration.md").read_text())
    named = {name.lower() for name in re.findall(r"name: DIBS_(\w+)", rendered)}
    assert len(named) > 6 and named <= {name.lower() for name in known}, named
