"""What a person must hear when a mount cannot be, or stop being."""


class Refused(Exception):
    """`what` happened, `why`, and what to do next (`fix`)."""

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.fix = what, why, fix
