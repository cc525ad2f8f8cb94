"""The composition root: what a process is made of, and how it starts and stops."""

from onbeat.app.node import DevMode, FireSeen, serve
from onbeat.app.remote_worker import run_worker
from onbeat.app.services import Services, egress_rules, open_services

__all__ = ["DevMode", "FireSeen", "Services", "egress_rules", "open_services", "run_worker", "serve"]
