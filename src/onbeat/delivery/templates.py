"""The requests of job versions, made once: what `prepare` costs is paid by a version's first run."""

from __future__ import annotations

from typing import Final

from onbeat.delivery.request import Delivery, RequestTemplate, prepare
from onbeat.domain.egress import EgressRules

_MOST: Final = 50_000


class Templates:
    """A cache in order of making: the oldest goes first, for it is cheap to make again."""

    def __init__(self, *, rules: EgressRules) -> None:
        self._rules = rules
        self._made: dict[tuple[int, int], RequestTemplate] = {}

    def template_of(self, delivery: Delivery) -> RequestTemplate:
        """The template of a delivery's job version. Raises DefinitionError: the stored row cannot be sent."""
        version = (delivery.key.job_id, delivery.job_version)
        template = self._made.get(version)
        if template is None:
            template = prepare(delivery, rules=self._rules)
            if len(self._made) >= _MOST:
                del self._made[next(iter(self._made))]
            self._made[version] = template
        return template
