"""One running `spillway --stream`: requests in, answers out, matched by their ids."""

import collections
import json
import logging
import os
import re
import subprocess
import threading
import weakref

from spillway.errors import SpillwayError

_LOG = logging.getLogger("spillway")
_ERROR_LINE = re.compile(r"spillway: error\[(E-[A-Z-]+)\]: (.*)")
_STOP_S = 10  # for the program to end by itself


def _environment():
    return {name: value for name, value in os.environ.items() if name != "SPILLWAY_BINARY"}


def _close_input(process):
    try:
        process.stdin.close()
    except OSError:  # what was still to be written
        pass


def _end(process):
    """Ends a process that nobody wants an answer of any more."""
    _close_input(process)
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Worker:
    """A process, a thread that reads its answers and one that reads what it says. Any thread may send."""

    def __init__(self, command):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, env=_environment())
        self._lock = threading.Lock()  # of the ids that wait, and of the end
        self._sending = threading.Lock()
        self._waiting = {}  # what takes the answer, by id
        self._next_id = 0
        self._error = None
        self._closing = False
        self._said = collections.deque(maxlen=20)
        self.summary = ""
        self._finalizer = weakref.finalize(self, _end, self._process)
        saying = threading.Thread(target=_read_said, args=(self._process.stderr, weakref.ref(self)), daemon=True)
        saying.start()
        reading = threading.Thread(target=_read_answers, args=(self._process, saying, weakref.ref(self)), daemon=True)
        reading.start()
        self._threads = (reading, saying)

    @property
    def ended(self):
        with self._lock:
            return self._error is not None

    def send(self, body, take):
        """Sends a request; `take` is called on another thread, once, with the answer or an exception."""
        with self._sending:
            with self._lock:
                if self._error is not None:
                    raise self._error
                number = str(self._next_id)
                self._next_id += 1
                self._waiting[number] = take
            self._write(json.dumps({**body, "custom_id": number}))

    def flush(self):
        """Has the program begin with what was sent."""
        with self._sending:
            self._write('{"flush":true}')

    def close(self):
        """Ends the program: at once where answers are still to come."""
        with self._lock:
            self._closing = True
            idle = not self._waiting
        if idle:
            with self._sending:
                _close_input(self._process)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                pass
        _end(self._process)
        for thread in self._threads:
            thread.join()

    def _write(self, line):
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # gone, or closed: the reading thread tells everybody why
            pass

    def _take_answer(self, line):
        answer = json.loads(line)
        with self._lock:
            take = self._waiting.pop(answer["custom_id"], None)
        if take is not None:
            take(answer)

    def _take_said(self, line):
        if not line.strip():
            return
        self._said.append(line)
        if line.startswith("stream: "):
            self.summary = line
        _LOG.log(logging.WARNING if line.startswith("spillway: warning: ") else logging.INFO, "%s", line)

    def _take_end(self):
        status = self._process.wait()
        error = self._error_of(status)
        with self._lock:
            self._error = error
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for take in waiting:
            take(error)

    def _error_of(self, status):
        for line in reversed(self._said):
            found = _ERROR_LINE.match(line)
            if found and not self._closing:
                return SpillwayError(found[2], found[1], status)
        if self._closing:
            return SpillwayError("the engine is closed", "", status)
        return SpillwayError(" | ".join(self._said) or "the program ended and said nothing", "", status)


# Threads hold no reference to the worker while they wait, so that one that is forgotten ends.


def _read_answers(process, saying, worker):
    with process.stdout:
        for line in process.stdout:
            owner = worker()
            if owner is None:
                return
            owner._take_answer(line)
            del owner
    saying.join()
    owner = worker()
    if owner is not None:
        owner._take_end()


def _read_said(stream, worker):
    with stream:
        for line in stream:
            owner = worker()
            if owner is None:
                return
            owner._take_said(line.decode(errors="replace").rstrip("\n"))
            del owner
