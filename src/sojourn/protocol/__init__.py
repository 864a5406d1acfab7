"""What crosses a boundary: messages, environment results, trajectories and errors. Imports nothing of Sojourn."""
