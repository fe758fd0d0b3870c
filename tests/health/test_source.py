"""Words of the kernel count if the kernel says them: programs repeat them, and texts quote them."""

import json

import pytest

from tests.health.judging import answered, index, judged
from trainmaster.core.health.stream import LogStream

XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid=4242, name=python, GPU has fallen off the bus."
AER = "pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:1b:00.0"
DISK = "nvme nvme0: Device not ready; aborting reset, CSTS=0x1"
SHUT = 'XFS (nvme0n1p1): metadata I/O error in "xfs_trans_read" at daddr 0x10 len 8 error 5'
WORDS = {"xid": XID, "aer": AER, "disk": DISK, "xfs": SHUT}


def entry(message: str, **more: str) -> str:
    return json.dumps({"MESSAGE": message, "_HOSTNAME": "gpu-1", "__REALTIME_TIMESTAMP": "1741082400000000", **more})


BY_PROGRAMS = {
    "an exporter": "Dec  6 10:00:00 gpu-1 gpud[4242]: {}",
    "an exporter that names the kernel": "Dec  6 10:00:00 gpu-1 gpud[4242]: kernel: {}",
    "an exporter that quotes": 'Dec  6 10:00:00 gpu-1 gpud[4242]: found event "{}" in kmsg',
    "a tag without a number": "Dec  6 10:00:00 gpu-1 gpud: {}",
    "a command": "Dec  6 10:00:00 gpu-1 sudo: ops : TTY=pts/0 ; PWD=/root ; COMMAND=/usr/bin/grep {} /var/log/messages",
    "a program, no head": "python[4242]: {}",
    "syslog in ISO 8601": "2025-01-21T10:00:00.1+00:00 gpu-1 python[4242]: {}",
    "syslog of RFC 5424": "<13>1 2025-01-21T10:00:00.1Z gpu-1 gpud 4242 - - {}",
    "syslog of RFC 5424, facility 0": "<4>1 2025-01-21T10:00:00.1Z gpu-1 gpud 4242 - - {}",
    "the kernel's tag and another facility": "<14>Dec  6 10:00:00 gpu-1 kernel: {}",
    "a pod": "I0304 10:00:00.123456       1 monitor.go:55] {}",
    "a container": "2025-01-21T10:00:00.1Z I0304 10:00:00.123456 1 monitor.go:55] new event: {}",
    "dmesg -x": "user  :notice: [   12.345678] {}",
    "dmesg -x, a daemon": "daemon:info  : [   12.345678] {}",
    "dmesg -r": "<12>[   12.345678] {}",
    "/dev/kmsg": "12,77,12345678,-;{}",
}
SENTENCES = (
    "If you see {} in the log then reboot the host.",
    "For instance the driver may say {} and then nothing more.",
    "  - A line such as `{}` means that the card is lost.",
    "Symptom: '{}'",
    "Dec  6 10:00:00 gpu-1 kernel: audit: type=1400 the command of the user was {}",
)
BY_KERNEL = (
    "{}",
    "[   12.345678] {}",
    "[   12.345678][ T1234] {}",
    "kernel: {}",
    "<4>[   12.345678] {}",
    "4,77,12345678,-;{}",
    "kern  :err   : [   12.345678] {}",
    "<4>Dec  6 10:00:00 gpu-1 kernel: {}",
    "Dec  6 10:00:00 gpu-1 kernel: [   12.345678] {}",
    "[   12.345678] gpu-1 kernel: {}",
    "gpu-1: [   12.345678] {}",
    "gpu-1: Dec  6 10:00:00 gpu-1 kernel: {}",
    "messages:77:Dec  6 10:00:00 gpu-1 kernel: {}",
    "<4>1 2025-01-21T10:00:00.1Z gpu-1 kernel - - - {}",
    "77:[   12.345678] {}",
    "    [   12.345678] {}",
)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("form", BY_PROGRAMS)
def test_a_program_repeats_it(form: str, words: str) -> None:
    """1. A program writes what the kernel writes. 2. Nothing is asked for."""
    found = judged(BY_PROGRAMS[form].format(WORDS[words]) + "\n")
    assert str(found.verdict) in ("ok", "unknown"), found.findings
    assert {each.rule for each in found.findings} <= {"log", "no-form"}


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("form", SENTENCES)
def test_a_sentence_quotes_it(form: str, words: str) -> None:
    """1. A line stands within a sentence. 2. No rule counts it."""
    found = judged(form.format(WORDS[words]) + "\n")
    assert {each.rule for each in found.findings} <= {"log", "no-form"}, found.findings


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("form", BY_KERNEL)
def test_the_kernel_says_it(form: str, words: str) -> None:
    """1. The kernel's line has the head of some tool. 2. It counts as it does without."""
    plain, found = judged(WORDS[words] + "\n"), judged(form.format(WORDS[words]) + "\n")
    assert answered(found) == answered(plain)
    assert found.verdict not in ("ok", "unknown")


@pytest.mark.parametrize(
    "more",
    [
        {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "python"},
        {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "gpud"},
        {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "gpud", "SYSLOG_FACILITY": "1"},
        {"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1"},
        {"SYSLOG_IDENTIFIER": "gpud"},
        {"_TRANSPORT": "stdout", "__MONOTONIC_TIMESTAMP": "12345678"},
    ],
)
def test_entries_of_the_journal(more: dict[str, str]) -> None:
    """1. An entry of a program has the kernel's words. 2. It asks for nothing; the same entry of the kernel does."""
    assert str(judged(entry(XID, **more) + "\n").verdict) == "ok"
    own = {**more, "_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "SYSLOG_FACILITY": "0"}
    assert str(judged(entry(XID, **own) + "\n").verdict) == "bad"


@pytest.mark.parametrize("form", BY_PROGRAMS)
def test_as_it_comes(form: str) -> None:
    """1. A log that goes on holds a program's line, then the kernel's. 2. Only the second is told."""
    stream = LogStream(index())
    assert stream.feed([BY_PROGRAMS[form].format(XID)]) == []
    assert [str(each.answer) for each in stream.feed([f"[   13.0] {XID}"])] == ["bad, reboot"]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("Dec  6 10:00:00 gpu-1 nv-fabricmanager[12]: detected NVSwitch fatal error 20034 on fid 0 on NVSwitch "
         "pci bus id 00000000:86:00.0 physical id 3 port 40", "bad"),
        ("Dec  6 10:00:00 gpu-1 systemd-networkd[12]: eth0: Lost carrier", "watch"),
        ("Dec  6 10:00:00 gpu-1 slurmd[12]: fatal: can't stat gres.conf file /dev/nvidia3: No such file", "bad"),
    ],
)  # fmt: skip
def test_lines_that_programs_own(line: str, answer: str) -> None:
    """1. A program writes what it found out by itself. 2. That counts."""
    assert str(judged(line + "\n").verdict) == answer
