"""The lowest floor: data and ports that everything else is written in."""
