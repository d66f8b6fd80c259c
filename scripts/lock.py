"""Write the lock files anew: `python3 scripts/lock.py [--upgrade]`.

Without `--upgrade`, pins that still fit stay. The largest layer is resolved first and the smaller ones under
its versions, so that a package has one version in all of them. The files hold versions and hashes, and no
address of the registry that this machine happens to use.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from prepare import (
    BROWSER,
    CACHE,
    COMPARISON,
    CONFORMANCE,
    FRAMEWORKS,
    INTEROP_PACKAGES,
    ROOT,
    SERVERS,
    PrepareError,
    Venv,
    check_system,
    requirements,
    run_logged,
    say,
)

if TYPE_CHECKING:
    from pathlib import Path

LOG = CACHE / "logs" / "lock.log"
NPM = [
    "--package-lock-only",
    "--omit-lockfile-registry-resolved",
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
]


def index_environment() -> dict[str, str]:
    """The environment for uv, which does not read pip's configuration: pass on the index that pip uses."""
    environment = dict(os.environ)
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    index = environment.get("PIP_INDEX_URL") or asked.stdout.strip()
    if index:
        environment.setdefault("UV_DEFAULT_INDEX", index)
    return environment


def compile_lock(uv: Path, output: Path, sources: list[str], upgrade: bool) -> None:
    """Resolve the sources into one lock file with hashes, for every supported Python."""
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate"]
    command: list[str | Path] = [
        uv,
        "pip",
        "compile",
        "--no-config",
        *options,
        *(["--upgrade"] if upgrade else []),
    ]
    run_logged(
        f"could not lock {output.name}",
        [*command, "--output-file", output, *sources],
        LOG,
        cwd=ROOT,
        env=index_environment(),
    )
    foreign = re.findall(r"https?://\S+|file:\S+|^-\S+.*$", output.read_text(), re.MULTILINE)
    if foreign:
        raise PrepareError(f"{output} would hold addresses of this machine: {foreign[:3]}")
    say(f"wrote {output.relative_to(ROOT)}")


def lock_npm(manifests: Path) -> None:
    """Write package-lock.json beside the manifest, without download addresses."""
    place = CACHE / "lock-npm"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        if (manifests / name).exists():
            shutil.copy(manifests / name, place)
    run_logged("could not lock the npm packages", ["npm", "install", *NPM], LOG, cwd=place)
    written = (place / "package-lock.json").read_text()
    if '"resolved"' in written:
        raise PrepareError("npm wrote download addresses into package-lock.json")
    (manifests / "package-lock.json").write_text(written)
    say(f"wrote {(manifests / 'package-lock.json').relative_to(ROOT)}")


def main() -> int:
    """Run from the command line."""
    upgrade = "--upgrade" in sys.argv[1:]
    try:
        check_system(wants_node=True)
        tool = Venv(CACHE / "lock-venv")
        tool.install(".tool", requirements("lock-tool"))
        uv = tool.place / "bin" / "uv"
        base = ["pyproject.toml", "requirements/build.in"]
        dev = requirements("dev")
        served = ["--extra", "serve"]  # the demo shows the service, too
        others = ("redis", "otel", "prometheus")  # the tests need what users choose from
        extras = [*served, *(word for name in others for word in ("--extra", name))]
        groups = {"dev": [*extras, "--group", "dev"], "test": [*extras, "--group", "test"], "run": served}
        for layer, group in groups.items():
            under = [] if layer == "dev" else ["--constraints", str(dev.relative_to(ROOT))]
            compile_lock(uv, requirements(layer), [*base, *group, *under], upgrade)
        for peer in ("mcp2", "mcp1"):
            source = (SERVERS / f"{peer}.in").relative_to(ROOT)
            compile_lock(uv, SERVERS / f"{peer}.txt", [str(source)], upgrade)
        frameworks = str(FRAMEWORKS.with_suffix(".in").relative_to(ROOT))
        compile_lock(uv, FRAMEWORKS, ["pyproject.toml", frameworks], upgrade)
        for source in sorted(INTEROP_PACKAGES.glob("*.in")):
            compile_lock(uv, source.with_suffix(".txt"), [str(source.relative_to(ROOT))], upgrade)
        # what a user of ours gets who asks for nothing more, beside what users of others get
        compile_lock(uv, COMPARISON / "afpool.txt", ["pyproject.toml"], upgrade)
        for source in sorted(COMPARISON.glob("*.in")):
            compile_lock(uv, source.with_suffix(".txt"), [str(source.relative_to(ROOT))], upgrade)
        compile_lock(uv, requirements("lock-tool"), ["requirements/lock-tool.in"], upgrade)
        for manifests in (
            SERVERS,
            CONFORMANCE,
            BROWSER,
            *(each.parent for each in INTEROP_PACKAGES.glob("*/package.json")),
        ):
            lock_npm(manifests)
    except PrepareError as error:
        print(f"lock: {error}", file=sys.stderr)
        return error.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
