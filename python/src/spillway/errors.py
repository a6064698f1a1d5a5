"""Errors of the program as exceptions."""


class SpillwayError(Exception):
    """The program ended: its one line, the code in it and the exit status.

    `code` is as in "error[E-CPU-MEMORY]", "" where the program left no such line.
    """

    def __init__(self, message, code="", exit_status=1):
        super().__init__(message)
        self.message = message
        self.code = code
        self.exit_status = exit_status

    def __reduce__(self):
        return type(self), (self.message, self.code, self.exit_status)

    def __str__(self):
        code = f"error[{self.code}]: " if self.code else ""
        return f"{code}{self.message} (exit status {self.exit_status})"


class RequestError(Exception):
    """One request cannot be answered; the others are not affected. `index` is its place among the call's, from 0."""

    def __init__(self, message, code, index):
        super().__init__(message)
        self.message = message
        self.code = code
        self.index = index

    def __reduce__(self):
        return type(self), (self.message, self.code, self.index)

    def __str__(self):
        return f"request {self.index}: {self.code}: {self.message}"
