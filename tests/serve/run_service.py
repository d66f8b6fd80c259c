"""Serve a configuration file in a process of its own; its exit code is the service's."""

from __future__ import annotations

import logging
import sys

import trio

from afpool.config import load_config
from afpool.serve import serve

logging.basicConfig(level=logging.INFO, stream=sys.stderr)


def load():
    return load_config(sys.argv[1])


async def main():
    return await serve(load(), load=load, announce=lambda line: print(line, flush=True))


sys.exit(trio.run(main))
