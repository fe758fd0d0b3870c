"""Lines as watchdogs, launchers and libraries of several versions print them, with numbers to fill in."""

OLDEST = (
    "[E ProcessGroupNCCL.cpp:325] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(OpType={op}, Timeout(ms)=1800000) ran for 1801256 milliseconds before timing out.\n"
)
"""PyTorch 1.12."""
OLD = (
    "[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, "
    "OpType={op}, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800648 milliseconds before timing out.\n"
)
"""2.1."""
CAUGHT = (
    "[rank{rank}]:[E626 05:14:3{last}.393067540 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600020 "
    "milliseconds before timing out.\n"
)
"""2.3 and later."""
COUNTERS = (
    (
        "[rank{rank}]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank {rank}] Timeout at NCCL work: {seq}, last enqueued NCCL "
        "work: {entered}, last completed NCCL work: {done}.\n"
    ),
    (
        "[rank{rank}]:[E1206 18:44:12.715588844 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank {rank}] Exception "
        "(either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {entered}, last "
        "completed NCCL work: {done}.\n"
    ),
    (
        "[rank{rank}]:[E626 05:14:30.393967540 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
        "failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {entered}, last "
        "completed work: {done}\n"
    ),
)
"""2.3, 2.5, 2.7 and later."""
TRACEBACK = (
    "{head}Traceback (most recent call last):\n"
    '{head}  File "/app/train.py", line 10, in <module>\n{head}    main()\n'
    '{head}  File "/app/data.py", line 77, in load\n{head}    raise {error}\n'
    '{head}  File "/venv/lib/python3.11/site-packages/torch/x.py", line 5, in call\n{head}    run()\n{head}{error}\n'
)
SUMMARY = """train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-06-26_05:14:30
  host      : gpu-003
  rank      : 11 (local_rank: 3)
  exitcode  : -9 (pid: 1234)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1234
"""
"""Of torchrun."""


def caught(ranks: tuple[int, ...], seq: int, op: str = "ALLREDUCE") -> str:
    return "".join(CAUGHT.format(rank=rank, last=rank % 10, seq=seq, op=op) for rank in ranks)
