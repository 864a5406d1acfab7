"""The worlds. Each folder is one environment; `registry` finds them by name."""
