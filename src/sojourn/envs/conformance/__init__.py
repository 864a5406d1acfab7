"""What every environment owes, as named checks: for tests, and for whoever writes an environment of their own.

`run` plays a sample of an environment's tasks and returns one result for each check. A check says nothing about what a
world is; it compares the world with itself: played twice, forked, restored elsewhere, fed nonsense.
"""

from sojourn.envs.conformance.checks import CHECKS
from sojourn.envs.conformance.examine import CheckResult, run

__all__ = ["CHECKS", "CheckResult", "run"]
