"""Text generation by token ids. `base` is the contract; each other file is one engine."""
