#!/bin/sh
# Print the first Python of at least 3.11 that is on PATH, or nothing. An explicit choice is tried alone.
for python in ${1:-python3 python3.13 python3.12 python3.11 python3.14}; do
    found=$(command -v "$python") || continue
    if "$found" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        echo "$found"
        exit 0
    fi
done
exit 0
