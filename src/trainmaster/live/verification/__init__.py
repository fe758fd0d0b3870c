"""What verification runs and measures; how it is judged stands in `core/health/verification`.

    devices    what there is to be tested
    exact      operations whose results are known to the last bit, on any device
    burn       these operations under load, on all devices at once
    memory     patterns written, read and compared
    quick, deep, group     the three tasks
    ranks      the ranks of a group that runs on one host

PyTorch is imported where it is used: without it a task says that it could not be run.
"""
