"""Asks programs for the measures of all cases, each program in a process of its own.

A program that raises, hangs or ends its process loses a value, not the table.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from referee import judge

FOLDER = Path(__file__).resolve().parent
SECONDS = 60  # for one case
FIRST = 3  # times as many for the first case of a process, with the imports of a program
START_SECONDS = 180  # until a process says its version
OURS = "dmlkit_"


class Worker:
    """A process that asks one program, started again after it hung or ended.

    Its path has this folder alone, without the project's other folders, whose names other programs import
    (`datasets`); adapters of this project (`dmlkit_…`) have the project.
    """

    def __init__(self, adapter: str, python: str = sys.executable, seconds: float = SECONDS):
        self.adapter = adapter
        self.python = python
        self.seconds = seconds
        self.version = None
        self.failure = None
        self._process = None
        self._place = tempfile.TemporaryDirectory()
        self._start()

    def _start(self):
        place = FOLDER.parent
        if not self.adapter.startswith(OURS):
            place = Path(self._place.name)
            if not (place / "referee").exists():
                (place / "referee").symlink_to(FOLDER)
        self._process = subprocess.Popen(
            [self.python, "-m", "referee.worker", self.adapter],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(place), "TQDM_DISABLE": "1"},
            text=True,
        )
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout, self._lines), daemon=True).start()
        self.limit = FIRST * self.seconds
        first = self._line(START_SECONDS)
        if isinstance(first, dict):
            self.version = first["version"]
            self.failure = first["failure"]
        else:
            self.failure = first
            self.close()

    @staticmethod
    def _read(stream, lines: queue.Queue):
        for line in stream:
            lines.put(line)
        lines.put(None)

    def _line(self, seconds: float) -> dict | str:
        """The next line of the process, or why there is none."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            return f"no answer within {seconds:g} s"
        return "its process ended" if line is None else json.loads(line)

    def ask(self, number: int, cut: int | None) -> dict[str, float | str]:
        """Measure -> value, or a text that begins with `error: `, for all measures of a case."""
        try:
            self._process.stdin.write(json.dumps([number, cut]) + "\n")
            self._process.stdin.flush()
            answer = self._line(self.limit)
            self.limit = self.seconds
        except OSError:
            answer = "its process ended"
        if isinstance(answer, dict):
            return answer
        self.close()
        self._start()
        return {"*": f"error: {answer}"}

    def close(self):
        """End the process."""
        self._process.kill()
        self._process.wait()


def verdicts_of(worker: Worker, cases: list[dict]) -> list[judge.Verdict]:
    """The verdicts of one program on all cases."""
    numbers = {case["name"]: number for number, case in enumerate(cases)}

    def values(question: dict) -> dict:
        answer = worker.ask(numbers[question["name"]], question.get("cut"))
        if "*" in answer:
            raise RuntimeError(answer["*"].removeprefix("error: "))
        return answer

    return judge.judge(values, cases).verdicts


def adapters() -> list[str]:
    """The names of all adapters."""
    return sorted(path.stem for path in (FOLDER / "adapters").glob("[a-z]*.py"))
