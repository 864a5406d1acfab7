"""How the embedded policy is made: `python -m sojourn.cli.embedded --help`."""
