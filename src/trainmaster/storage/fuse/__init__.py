"""A file system in user space: the kernel's FUSE protocol spoken directly, over names in SQLite and content in files.

    names.py      who is called what, and what the kernel is told of it        (name layer and file layer)
    contents.py   the bytes of each file, one plain file each, by number       (what becomes blocks in a store)
    protocol.py   requests and answers as bytes; pure
    channel.py    the device: requests in, answers out
    opened.py     files that are open, and which of them the kernel reads and writes itself
    tree.py       requests answered from names and contents
    daemon.py     the processes: one that holds the mount, one that answers, and is replaced when it dies
    mounting.py   what the kernel mounts and unmounts, and why it refuses
    store.py      the directory where all of it lies

`docs/adr` has why it is cut so.
"""
