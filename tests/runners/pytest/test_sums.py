import threading

import pytest


def sum_of_threads():
    numbers = []
    threads = [threading.Thread(target=numbers.append, args=(n,)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(numbers)


def test_adds():
    assert sum_of_threads() == 3


def test_adds_wrongly():
    assert sum_of_threads() == 4


def test_is_skipped():
    pytest.skip("not here")
