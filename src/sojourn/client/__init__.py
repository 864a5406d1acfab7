"""Environment servers as a trainer sees them: one server (`session`), several (`pool`)."""
