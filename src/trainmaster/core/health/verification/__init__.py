"""Verification: what runs on a host before it takes work, judged.

    outcome    pass, fail, not-run, invalid; results and what several of them come to
    deadline   how long a task may take, by the number of devices
    level      what is usual among peers, and what is worse than that
    pairing    who is paired with whom, in rounds
    pairwise   pairs that are slow, corrupt or dead into hosts, paths, common causes
    bits       which bits of a result are wrong, and whether that comes again
    campaign   hosts on which distinct programs fail

All pure. What runs and measures stands in `live/verification`.
"""
