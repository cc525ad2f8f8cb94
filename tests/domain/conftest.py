"""Hypothesis profiles: short by default; HYPOTHESIS_PROFILE=nightly looks much longer."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_QUIET = (HealthCheck.too_slow, HealthCheck.filter_too_much)
settings.register_profile("short", max_examples=60, deadline=None, suppress_health_check=_QUIET)
settings.register_profile("nightly", max_examples=3_000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
