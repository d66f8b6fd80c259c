"""What a file says about a runtime and its service: read, checked, and told where it came from."""
