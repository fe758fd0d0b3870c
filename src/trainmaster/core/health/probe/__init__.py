"""What probes of a host see, judged: pure functions from the leaves of sysfs and procfs to findings.

`leaves.py` says what a look is; a module a subject. What a probe touches, and how long it may take, stands in
`live/agent/health/probes`.
"""
