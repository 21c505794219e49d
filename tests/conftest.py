"""How thorough property tests are: HYPOTHESIS_PROFILE is dev (the default), ci or nightly."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline: two cores are shared by whatever runs beside. `print_blob` says how to replay.
_COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("dev", _COMMON, max_examples=50)
settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
settings.register_profile("nightly", _COMMON, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
