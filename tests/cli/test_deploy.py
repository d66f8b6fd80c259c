"""The unit and the image of the examples, as far as any machine can: their own steps, in other places."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from afpool.cli._parsing import parse
from tests.cli.cli_kit import AFPOOL, ROOT, Running, run, surroundings
from tests.cli.test_serving import Listener

DEPLOY = ROOT / "examples" / "deploy"
WHO = ("--tenant", "acme", "--principal", "alice")


# ------------------------------------------------------------------ systemd


def unit():
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str
    parser.read(DEPLOY / "afpool.service")
    return parser


def configuration(place):
    text = (DEPLOY / "afpool.toml").read_text()
    for old, new in (("/run/afpool/", f"{place}/"), ("/var/lib/afpool/", f"{place}/")):
        assert old in text
        text = text.replace(old, new)
    path = place / "afpool.toml"
    path.write_text(text)
    return path


def started_by(unit_file, place):
    """The command of the unit, of this checkout and with the configuration of this place."""
    words = shlex.split(unit_file["Service"]["ExecStart"])
    assert words[0] == "/opt/afpool/bin/afpool"
    assert "/etc/afpool/afpool.toml" in words
    configuration(place)
    return [*AFPOOL, *(word.replace("/etc/afpool/", f"{place}/") for word in words[1:])]


def test_the_unit_starts_reloads_and_stops_the_service(tmp_path):
    service = unit()["Service"]
    assert service["Type"] == "notify"
    address = str(tmp_path / "notify")
    with (
        Listener(address) as systemd,
        Running(tmp_path, command=started_by(unit(), tmp_path), NOTIFY_SOCKET=address) as running,
    ):
        assert systemd.hear()["READY"] == "1"
        assert (tmp_path / "afpool.sock").is_socket()
        reload = service["ExecReload"].replace("$MAINPID", str(running.process.pid))
        subprocess.run(shlex.split(reload), check=True, timeout=30)
        assert systemd.hear()["RELOADING"] == "1"
        assert systemd.hear()["READY"] == "1"
        running.process.terminate()
        assert systemd.hear() == {"STOPPING": "1"}
        assert running.end() == 0
    assert not (tmp_path / "afpool.sock").exists()


def test_the_unit_gives_calls_their_time_and_does_not_start_again_what_cannot_be_used(tmp_path):
    service = unit()["Service"]
    drain = tomllib.loads((DEPLOY / "afpool.toml").read_text())["serve"]["drain"]
    assert int(service["TimeoutStopSec"]) > int(drain.removesuffix("s")) + 5
    command = started_by(unit(), tmp_path)
    path = tmp_path / "afpool.toml"
    path.write_text(path.read_text() + "unknown = 1\n")
    done = subprocess.run(
        command, cwd=tmp_path, env=surroundings(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert str(done.returncode) in service["RestartPreventExitStatus"].split()


def test_systemd_understands_the_unit_where_there_is_one(tmp_path):
    program = tmp_path / "afpool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = (DEPLOY / "afpool.service").read_text().replace("/opt/afpool/bin/afpool", str(program))
    copy = tmp_path / "afpool.service"
    copy.write_text(text)
    if shutil.which("systemd-analyze") is None:
        return  # what is in it is held above
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    about = [line for line in done.stderr.splitlines() if "afpool" in line]
    assert not about, done.stderr


# ------------------------------------------------------------------ the image


def steps():
    """The instructions of the Containerfile: word and rest."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text())
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line and not line.startswith("#")]


def stages():
    found = []
    for word, rest in steps():
        if word == "FROM":
            found.append((rest, []))
        else:
            found[-1][1].append((word, rest))
    return found


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The first stage of the image, built in a folder: its own COPY and RUN, with `/opt` and `/src` in there.

    The packages that the lock names are those of this environment, so that nothing is fetched: pip finds
    them satisfied, in the versions that the file pins.
    """
    root = tmp_path_factory.mktemp("image")
    (source, instructions), _ = stages()
    assert source.endswith(" AS build")
    here, made = root, False

    def inside(text):
        return text.replace("/opt/afpool", f"{root}/opt/afpool")

    for word, rest in instructions:
        if word == "WORKDIR":
            here = root / rest.lstrip("/")
            here.mkdir(parents=True)
        elif word == "COPY":
            *sources, target = rest.split()
            place = here / target
            for name in sources:
                origin = ROOT / name
                if origin.is_dir():
                    shutil.copytree(origin, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    goal = place / origin.name if target.endswith("/") or place.is_dir() else place
                    goal.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(origin, goal)
        else:
            assert word == "RUN"
            environment = surroundings(root, PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
            environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
            del environment["PYTHONPATH"]
            done = subprocess.run(
                inside(rest),
                shell=True,
                cwd=here,
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            if not made:
                made = True
                (site,) = (root / "opt" / "afpool").glob("lib/python*/site-packages")
                packages = [place for place in sys.path if place.endswith("site-packages")]
                (site / "here.pth").write_text("\n".join(packages) + "\n")
    return root


def test_the_image_holds_the_project_and_starts_it(image, tmp_path):
    _, instructions = stages()[1]
    said = dict(
        step for step in instructions if step[0] in {"ENTRYPOINT", "CMD", "STOPSIGNAL", "USER", "ENV"}
    )
    (entry,) = json.loads(said["ENTRYPOINT"])
    program = entry.replace("/opt/afpool", f"{image}/opt/afpool")
    environment = surroundings(tmp_path)
    del environment["PYTHONPATH"]
    shown = subprocess.run(
        [program, "version"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert shown.stdout == run(tmp_path, "version").stdout
    installed = "import afpool, pathlib; print(pathlib.Path(afpool.__file__).parent)"
    where = subprocess.run(
        [Path(program).parent / "python", "-c", installed],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(image), "what is installed, and not this checkout"
    assert (Path(where.stdout.strip()) / "config" / "afpool.schema.json").exists()
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert said["USER"] != "root"
    assert parse(json.loads(said["CMD"])).command.name == "serve"


def test_the_image_serves_what_is_mounted_and_its_probe_sees_it(image, tmp_path):
    _, instructions = stages()[1]
    said = dict(step for step in instructions if step[0] in {"ENTRYPOINT", "CMD", "HEALTHCHECK", "ENV"})
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    run(tmp_path, "token", "new", "x", *WHO, "--file", "tokens.json")
    (tmp_path / "afpool.toml").write_text('[serve.identity.tokens]\nfile = "tokens.json"\n')
    told = dict(pair.split("=", 1) for pair in said["ENV"].split())
    environment = {
        "AFPOOL_CONFIG": told["AFPOOL_CONFIG"].replace("/etc/afpool", str(tmp_path)),
        "AFPOOL_SERVE_BIND": told["AFPOOL_SERVE_BIND"].replace("0.0.0.0:8765", f"127.0.0.1:{port}"),
        "PYTHONPATH": "",
    }
    command = [
        word.replace("/opt/afpool", f"{image}/opt/afpool")
        for word in (*json.loads(said["ENTRYPOINT"]), *json.loads(said["CMD"]))
    ]
    probe = json.loads(said["HEALTHCHECK"].partition(" CMD ")[2])
    probe = [
        word.replace("/opt/afpool", f"{image}/opt/afpool").replace(":8765", f":{port}") for word in probe
    ]
    assert subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode != 0
    with Running(tmp_path, command=command, **environment) as running:
        running.line(lambda line: line.startswith("serving "))
        assert subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode == 0
        running.process.terminate()
        assert running.end() == 0
