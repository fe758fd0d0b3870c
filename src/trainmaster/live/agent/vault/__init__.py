"""The vault of a host: keeps what ranks have snapshotted, at another host and in storage, so that ranks need not.

It is a child of the keeper, which starts it before any worker and again if it dies (`tending.py`), and it ends with the
keeper. It has threads, since it never forks: one that listens to the ranks (`vault.py`), one for each rank whose
snapshots it copies to another host (`sending.py`), one for each connection from another vault (`receiving.py`), and two
that store (`storing.py`). It needs no PyTorch. What it knows lies in the arenas and in storage, so that it may die at
any moment: ranks tell it the rest again.
"""
