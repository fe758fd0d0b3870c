"""Errors that a user of the library sees: one sentence that says what, why, and what to do."""


class TrainingError(Exception):
    """The job cannot go on as asked."""


class SaveFailed(Exception):
    """A save ended without a publish, on all ranks alike. Training goes on."""


class NoRoom(SaveFailed):
    """It found no room: the volume is full, or a quota is reached."""
