"""Health of the host as its agent sees it: the kernel's log, and probes in processes of their own. `monitor.py` is
where to start reading."""
