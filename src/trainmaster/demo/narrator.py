"""What the user sees while the demo runs: one line a change, on stderr, with the seconds since the start.

On a terminal the line of progress is rewritten in place; elsewhere a line comes when something happened or when
`QUIET_S` have passed, so that a log stays readable.
"""

import sys
import time

from trainmaster.cli.words import loss_text
from trainmaster.live.server.resources import JobDetail, JobProgress

QUIET_S = 3.0


class Narrator:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._open = False
        self._spoke_at = 0.0

    def seconds(self) -> float:
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Something happened."""
        self._close()
        sys.stderr.write(f"[{self.seconds():6.1f} s] {text}\n")
        sys.stderr.flush()
        self._spoke_at = self.seconds()

    def progress(self, detail: JobDetail, steps: int) -> None:
        """How far the job is and who takes part."""
        text = describe(detail, detail.progress, steps)
        if self._terminal:
            sys.stderr.write(f"\r\x1b[K[{self.seconds():6.1f} s] {text}")
            sys.stderr.flush()
            self._open = True
        elif self.seconds() - self._spoke_at >= QUIET_S:
            self.say(text)

    def _close(self) -> None:
        if self._open:
            sys.stderr.write("\n")
            self._open = False


def describe(detail: JobDetail, progress: JobProgress | None, steps: int) -> str:
    job = detail.job
    if progress is None or progress.step <= 0 or progress.epoch != job.epoch:
        state = job.attempt_state or job.state
        why = f": {job.reason.sentence}" if job.reason is not None else ""
        return f"{job.name}: {state}{why}"
    done = round(20 * progress.step / steps)
    bar = "#" * done + "." * (20 - done)
    spare = f" + spare {' '.join(job.spares)}" if job.spares else ""
    loss = f"loss {loss_text(progress.loss)}  {progress.step_s:.2f} s/step"
    return f"{job.name} [{bar}] step {progress.step}/{steps}  {loss}  epoch {job.epoch} on {' '.join(job.hosts)}{spare}"
