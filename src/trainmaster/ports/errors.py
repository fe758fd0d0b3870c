"""An error that a person can act on: what happened, why, and what to do next. Faces print these three and no traceback;
any other exception is a defect and is reported as one."""


class UserError(Exception):
    """`what` and `why` are sentences without a final stop; `fix` is the next command or step."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        assert what
        assert fix, what
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.fix = what, why, fix
