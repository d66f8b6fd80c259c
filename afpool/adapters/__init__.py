"""The tools of a runtime in the shape that other agent frameworks take."""
