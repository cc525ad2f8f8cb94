"""The composition root: what a process is made of, and how it starts and stops.

Imports nothing by itself: a delivery process needs few of these modules, and is there the sooner.
"""
