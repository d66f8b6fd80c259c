"""A pytest plugin: this process imports one file as a mutant has it (`AFPOOL_MUTANT`)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.mutation.alive import imported
from tests.mutation.changes import Change

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs in the background
_change = Change(**json.loads(os.environ["AFPOOL_MUTANT"]))
_path = Path.cwd() / _change.file
imported(_path, _change.applied(_path.read_text()))
