"""The main job, told in four minutes: `trainmaster demo`.

A reference model trains on real text over four local hosts and a spare, twice: once undisturbed, and once while rank
0's host is killed and another one is drained for maintenance. Everything is real: processes, signals, checkpoints, the
server, the command line's own API. The two runs must end with the same losses to the bit; the report says what each
disturbance cost and where every second went.
"""
