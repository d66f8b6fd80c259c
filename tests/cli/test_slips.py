"""What a file that cannot be read says of the flags beside it: nothing."""

from __future__ import annotations

from tests.cli.cli_kit import run


def test_a_file_that_cannot_be_read_makes_no_flag_unknown(tmp_path):
    (tmp_path / "afpool.toml").write_text("")
    done = run(tmp_path, "serve", "--bind", "127.0.0.1:0")
    assert done.returncode == 2
    assert "it is empty" in done.stderr
    assert "flag" not in done.stderr
    (tmp_path / "afpool.toml").write_text("[serve]\nbnd = 1\n")
    done = run(tmp_path, "serve", "--set", "serve.bnid=127.0.0.1:0")
    assert [line.partition(": there")[0] for line in done.stderr.splitlines()] == [
        "error: afpool.toml:2: serve.bnd", "error: flag: serve.bnid",
    ]  # fmt: skip
