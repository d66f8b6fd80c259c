"""The console of a runtime: off unless it is asked for, open as long as the runtime is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from afpool import RuntimeConfig, open_runtime
from afpool.config import load_config
from afpool.console import CannotOpenConsole, ConsoleSettings
from afpool.serve import open_service
from tests.console.server_kit import OPERATE, READ, attached, unix

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="afc-", dir="/tmp") as made:
        monkeypatch.setenv("AFPOOL_CONSOLE_DIRECTORY", f"{made}/c")
        yield Path(made)


def files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_there_is_none_unless_it_is_asked_for(folder: Path) -> None:
    async with open_runtime(RuntimeConfig()) as runtime:
        assert runtime.console is None
        assert runtime.lag is None
    async with open_runtime(RuntimeConfig(console=False)) as runtime:
        assert runtime.console is None
    assert files(folder) == []


async def test_it_is_open_as_long_as_the_runtime_is(folder: Path) -> None:
    async with open_runtime(RuntimeConfig(console=True)) as runtime:
        console = runtime.console
        assert console is not None
        assert console.path is not None
        assert console.path.parent == folder / "c"
        assert console.found
        assert console.lag is runtime.lag
        async with attached(await unix(console)) as client:
            assert client.hello["name"] == "afpool"
            for table in client.hello["tables"]:
                answer = await client.ask(f"show {table['name']} limit=3")
                assert "ok" in answer, (table["name"], answer)
    assert runtime.console is None
    assert files(folder / "c") == []


async def test_one_that_cannot_listen_opens_no_runtime_unless_it_need_not(folder: Path) -> None:
    (folder / "c").mkdir(mode=0o755)
    (folder / "c").chmod(0o755)
    with pytest.raises(CannotOpenConsole):
        async with open_runtime(RuntimeConfig(console=True)):
            pytest.fail("it opened")
    async with open_runtime(RuntimeConfig(console=ConsoleSettings(required=False))) as runtime:
        assert runtime.console is None


@pytest.mark.parametrize("value", [None, 1, "yes", {}])
def test_what_is_no_console_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="console is True, False or ConsoleSettings"):
        RuntimeConfig(console=value)


async def test_another_configuration_cannot_change_it_and_the_same_tokens_are_no_other(folder: Path) -> None:
    del folder

    def said(token: str) -> RuntimeConfig:
        return RuntimeConfig(
            console=ConsoleSettings(bind="127.0.0.1:0", read_token=token), deadline=float(len(token))
        )

    async with open_runtime(said(READ)) as runtime:
        runtime.reconfigure(said(READ))
        with pytest.raises(ValueError, match="console cannot be changed"):
            runtime.reconfigure(said(OPERATE))


FILE = """
[console]
{}
[serve]
bind = "127.0.0.1:0"
[serve.identity.anonymous]
tenant = "acme"
"""


async def test_a_service_opens_what_its_file_says_and_keeps_it_on_a_reload(folder: Path) -> None:
    path = folder / "afpool.toml"

    def read(said: str) -> Any:
        path.write_text(FILE.format(said))
        return load_config(path)

    async with open_service(read("")) as service:
        assert service.runtime.console is None
    async with open_service(read("enabled = false"), console=True) as service:
        assert service.runtime.console is None
    token = f'bind = "127.0.0.1:0"\nread_token = "{READ}"'
    async with open_service(read(token), console=True) as service:
        console = service.runtime.console
        assert console is not None
        assert console.name == "serve"
        assert len(console.addresses) == 2
        assert await service.reload(read(token)) == ()
        kept = await service.reload(read(f'{token}\noperate_token = "{OPERATE}"'))
        assert kept == ("`console` counts from the next start on",)
        assert service.runtime.console is console
        async with attached(await unix(console)) as client:
            assert "ok" in await client.ask("show sessions")


async def test_a_runtime_that_is_cancelled_takes_its_console_along(folder: Path) -> None:
    with trio.CancelScope() as scope:
        async with open_runtime(RuntimeConfig(console=True)):
            scope.cancel()
            await trio.sleep_forever()
    assert files(folder / "c") == []
