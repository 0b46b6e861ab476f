"""Many clients at once, some with bad questions, while a version takes over."""

import collections
import dataclasses
import math
import random
import shutil
import threading
import time

import pytest

from tests.experiments.serving_command import serve
from tpt_keras.serving.clients.grpc_client import GrpcClient
from tpt_keras.serving.clients.rest_client import RestClient

CLIENTS = 32
REST_CLIENTS = 8
LARGEST_REQUEST = 8
BAD_SHARE = 0.05

QUESTIONS = [
    f"What is the {place} digit of {number}?"
    for place in ("units", "tens", "hundreds")
    for number in (23, 8234, 31859, 123456, 9870012)
] + ["Solve 2*x + 3 = 0 for x.", "1", "x" * 160]
STATUSES = {
    "": "EMPTY",
    "x" * 161: "TOO_LONG",
    "What is 5 % 3?": "UNKNOWN_CHARACTER",
    "½": "UNKNOWN_CHARACTER",
    b"What is \xff?": "INVALID_UTF8",
}


@dataclasses.dataclass
class Exchange:
    """A request and what came of it."""

    started: float
    questions: list
    answers: list


class Load:
    """Asks from many threads until there were so many requests more."""

    def __init__(self, addresses):
        self._addresses = addresses
        self._lock = threading.Lock()
        self._left = math.inf
        self._asked = 0
        self.exchanges = []
        self.errors = []
        self._threads = [
            threading.Thread(target=self._ask, args=[index])
            for index in range(CLIENTS)
        ]

    def start(self):
        for thread in self._threads:
            thread.start()

    def join_after(self, count):
        """Asks so often again; returns how often it has asked in all."""
        with self._lock:
            self._left = count
        for thread in self._threads:
            thread.join()
        return self._asked

    def _ask(self, index):
        chance = random.Random(index)
        if index < REST_CLIENTS:
            client = RestClient(self._addresses["rest"])
        else:
            client = GrpcClient(self._addresses["grpc"])
        with client:
            while self._is_one_left():
                size = chance.randint(1, LARGEST_REQUEST)
                questions = [_draw(chance) for _ in range(size)]
                started = time.monotonic()
                try:
                    answers = client.answer(questions)
                except Exception as error:
                    self.errors.append(error)
                else:
                    self.exchanges.append(Exchange(started, questions, answers))

    def _is_one_left(self):
        with self._lock:
            if self._left <= 0:
                return False
            self._left -= 1
            self._asked += 1
            return True


def _draw(chance):
    if chance.random() < BAD_SHARE:
        return chance.choice(list(STATUSES))
    return chance.choice(QUESTIONS)


# Before the takeover and after it; in between they go on asking.
@pytest.mark.parametrize(
    "requests", [200, pytest.param(3300, marks=pytest.mark.exhaustive)]
)
@pytest.mark.slow
def test_load(
    version, untrained_model, saved_model, trained_model, tmp_path, requests
):
    old = dict(zip(QUESTIONS, untrained_model.solve(QUESTIONS)))
    new = dict(zip(QUESTIONS, trained_model.solve(QUESTIONS)))
    assert all(old[question] != new[question] for question in QUESTIONS)
    shutil.copytree(version, tmp_path / "served" / "1")
    new_version = tmp_path / "2"
    shutil.copytree(saved_model / "1", new_version)
    with serve(f"--saved_model={tmp_path / 'served'}") as addresses:
        load = Load(addresses)
        start = time.monotonic()
        load.start()
        while len(load.exchanges) < requests:
            time.sleep(0.01)
            assert not load.errors
        # As `export` does it: whole at once, under its number.
        new_version.rename(tmp_path / "served" / "2")
        with RestClient(addresses["rest"]) as client:
            while client.model_status().get(2) != "AVAILABLE":
                time.sleep(0.01)
        taken_over = time.monotonic()
        asked = load.join_after(requests)
        seconds = time.monotonic() - start
    assert not load.errors
    assert len(load.exchanges) == asked
    said = collections.Counter()
    for exchange in load.exchanges:
        # After the takeover the new one answers, before it either may.
        is_old_possible = exchange.started < taken_over
        assert len(exchange.answers) == len(exchange.questions)
        for question, answer in zip(exchange.questions, exchange.answers):
            if question in STATUSES:
                assert answer.status == STATUSES[question]
                assert answer.answer == ""
                said[answer.status] += 1
                continue
            assert answer.status == "OK"
            if answer.answer == new[question]:
                said["new"] += 1
            else:
                assert is_old_possible
                assert answer.answer == old[question]
                said["old"] += 1
    # All of it happened.
    assert set(said) == {"old", "new", *STATUSES.values()}
    after = sum(e.started > taken_over for e in load.exchanges)
    # All but those that were drawn while it took over.
    assert after >= requests - CLIENTS
    print(
        f"{asked} requests, {said.total()} questions in {seconds:.1f} s; "
        f"{after} requests after the takeover. {dict(said)}"
    )
