"""Which meetings of two programs at an element are races, and which an order follows for."""

from __future__ import annotations

import numpy as np
import pytest

from evaluators.guards import MemoryFault, Regions
from evaluators.launch_order import Order

torch = pytest.importorskip("torch")


class Launch:
    """Programs of one launch on `data` (f32[8]) and `lock` (i32[1])."""

    def __init__(self):
        self.regions = Regions()
        self.regions.order = Order()
        self.data, self.lock = torch.zeros(8), torch.zeros(1, dtype=torch.int32)
        self.regions.add(self.data)
        self.regions.add(self.lock)

    def program(self, number):
        self.regions.order.program((number, 0, 0))

    def at(self, *places, of=None, size=4):
        return np.array(places, np.uint64) * np.uint64(size) + np.uint64((self.data if of is None else of).data_ptr())

    def read(self, *places, access="plain"):
        return self.regions.gather(self.at(*places), None, np.dtype(np.float32), access)

    def write(self, value, *places, mask=None):
        self.regions.scatter(self.at(*places), mask, np.full(len(places), value, np.float32))

    def atomic(self, *places, of=None, gets=True, gives=True):
        self.regions.atomic(self.at(*places, of=of), None, np.dtype(np.int32), gets, gives)

    def signal(self, **more):
        self.atomic(0, of=self.lock, **more)


def raced(said):
    return pytest.raises(MemoryFault, match=f"a race.*{said}")


def test_what_another_program_wrote_is_not_read_nor_overwritten():
    launch = Launch()
    launch.program(0)
    launch.write(1.0, 2, 3)
    launch.write(2.0, 3)
    assert launch.read(3) == [2.0]
    launch.program(1)
    launch.read(1, 4)
    with raced(r"reads what program \(0, 0, 0\) has written.*element 3 of 4 bytes"):
        launch.read(4, 3)
    with raced("another value"):
        launch.write(5.0, 2)
    with raced("plain store"):
        launch.atomic(2)
    launch.regions.clear()  # the next launch comes after all of it
    launch.regions.add(launch.data)
    launch.program(0)
    assert launch.read(2) == [1.0]


def test_what_another_program_read_is_not_changed():
    launch = Launch()
    launch.program(0)
    launch.read(0, 1)
    launch.program(1)
    launch.read(1, 2)
    launch.write(3.0, 2)
    with raced(r"writes what program \(0, 0, 0\) has read"):
        launch.write(3.0, 1)
    launch.write(0.0, 1)  # it is that already


def test_a_second_reader_is_not_forgotten():
    launch = Launch()
    launch.program(0)
    launch.read(3)
    launch.signal()
    launch.program(1)
    launch.read(3)
    launch.program(2)
    launch.signal()  # it knows of the first reader
    with raced(r"writes what program \(1, 0, 0\) has read"):
        launch.write(1.0, 3)


def test_a_volatile_read_is_a_read_for_who_writes_plainly():
    launch = Launch()
    launch.program(0)
    launch.read(3, access="volatile")
    launch.program(1)
    with raced(r"writes what program \(0, 0, 0\) has read"):
        launch.write(1.0, 3)
    launch.atomic(0, of=launch.data)
    launch.atomic(3, of=launch.data)  # whoever waits by volatile reads waits for that


def test_threads_of_a_program_meet_before_they_read_what_others_of_them_stored():
    launch = Launch()
    launch.program(0)
    launch.write(1.0, 0, 1, 2, 3)
    launch.read(0, 1, 2, 3)  # each its own
    with raced(r"another thread of the same program has stored \(element 3 of 4 bytes\)"):
        launch.read(3, 2, 1, 0)
    with raced("another thread"):
        launch.read(0, 1)  # a block of another size lies otherwise in the threads
    launch.regions.order.meet()
    launch.read(3, 2, 1, 0)
    launch.write(2.0, 5, 5)  # what several store, each has stored
    launch.read(5, 5)
    with raced("several places of a block store different values"):
        launch.regions.scatter(launch.at(0, 5, 5), None, np.array([1.0, 2.0, 3.0], np.float32))
    launch.write(3.0, 6, 7)
    launch.signal()
    launch.read(7, 6)
    launch.program(1)
    launch.write(1.0, 4, 5, mask=np.array([True, False]))


def test_masked_places_and_bytes_of_other_sizes_are_told_apart():
    launch = Launch()
    launch.program(0)
    launch.write(1.0, 0, 1, mask=np.array([True, False]))
    launch.program(1)
    launch.read(1)
    low = launch.at(0, 1, 2, 3, size=2)
    with raced("element 0 of 2 bytes"):
        launch.regions.gather(low, None, np.dtype(np.uint16))
    launch.regions.gather(low[2:], None, np.dtype(np.uint16))
    with raced("element 0 of 8 bytes"):
        launch.regions.gather(launch.at(0, 1, size=8), None, np.dtype(np.float64))


def test_the_same_value_is_no_race_nor_are_its_last_bits():
    launch = Launch()
    for number in range(3):
        launch.program(number)
        launch.write(np.float32(0.1) + np.float32(number) * np.float32(7e-9), 0)
        assert launch.read(0) > 0


@pytest.mark.parametrize(("gets", "gives", "ordered"), [(True, True, True), (False, False, False)])
def test_atomics_order_what_came_before_them_unless_they_are_relaxed(gets, gives, ordered):
    launch = Launch()
    launch.program(0)
    launch.write(1.0, 0)
    launch.signal(gets=gets, gives=gives)
    launch.program(1)
    launch.signal(gets=gets, gives=gives)
    launch.program(2)
    launch.signal(gets=gets, gives=gives)
    if ordered:
        launch.write(launch.read(0)[0] + 1, 0)
    else:
        with raced("reads"):
            launch.read(0)


def test_an_atomic_orders_nothing_that_comes_after_it_or_elsewhere():
    launch = Launch()
    launch.program(0)
    launch.signal()
    launch.write(1.0, 0)
    launch.program(1)
    launch.signal()
    with raced("reads"):
        launch.read(0)
    launch.program(2)
    launch.write(1.0, 5)
    launch.atomic(6)
    launch.program(3)
    launch.atomic(7)
    with raced("reads"):
        launch.read(5)


def test_whoever_waits_by_a_volatile_read_has_seen_what_was_released():
    launch = Launch()
    launch.program(0)
    launch.write(1.0, 0)
    launch.atomic(7, gets=False)
    launch.program(1)
    launch.read(7, access="volatile")
    assert launch.read(0) == [1.0]
    launch.program(2)
    with raced("reads"):
        launch.read(7)


def test_many_reads_of_what_nobody_writes_are_kept_within_bounds(monkeypatch):
    monkeypatch.setattr("evaluators.launch_order._PENDING", 10)
    launch = Launch()
    for number in range(9):
        launch.program(number)
        launch.read(0, 1, 2)
    (marks,) = launch.regions.order._marks.values()
    assert marks.waiting <= 10
    with raced("has read"):
        launch.write(1.0, 0)


DUMMY, LOCK, COUNT = "a count that nobody asks", "a lock", "a count of arrivals"


@pytest.mark.parametrize(("way", "race"), [(DUMMY, True), (LOCK, False), (COUNT, False)])
def test_programs_are_rehearsed_up_to_the_atomic_that_told_of_their_work(way, race):
    """Each of three programs adds to one element, or the last to arrive does for all."""
    launch = Launch()
    start = np.zeros(8, np.float32)

    def begin():
        launch.data[:], launch.lock[:] = torch.from_numpy(start), 0

    def changed(by, only_from=None):
        launch.signal()
        before = int(launch.lock[0])
        if only_from in (None, before):
            launch.lock[0] = by(before)
        return before

    def program(place):
        if way == LOCK:
            while changed(lambda _: 1, only_from=0):
                pass
        elif way == DUMMY:
            changed(lambda n: n + 1)
        if way == COUNT:
            launch.write(1.0, 1 + place[0])
            if changed(lambda n: n + 1) == 2:
                launch.write(sum(launch.read(1 + n)[0] for n in range(3)), 0)
            return
        launch.write(launch.read(0)[0] + 1, 0)
        changed(lambda n: 0 if way == LOCK else n + 1)

    for number in range(3):
        launch.program(number)
        program((number, 0, 0))
    assert launch.data[0] == 3
    if race:
        with raced("reads what program"):
            launch.regions.order.rehearse(program, begin)
    else:
        launch.regions.order.rehearse(program, begin)
