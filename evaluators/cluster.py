"""Judging on the nodes of a Ray cluster: a node holds a judge of its own, the run sends it candidates.

What travels is what this project trusts anyway: the target, the chip, the evaluator's class and its options go to the
nodes, texts of candidates too, and evaluations come back. A candidate itself runs where it always does, in the worker
processes of the node's own judge. avo has to be installed on every node, in the same version.

A node offers as many slots as it has processors, or two for each GPU where times are measured: Ray leases the GPU to
one judge, so no other candidate is ever timed beside it. A node that is lost costs the judgements that were under way
there; each is made again on another node. Verdicts land where `evaluate` returns, once.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evaluators.evaluation import Evaluation, Status
from evaluators.failures import Unavailable
from evaluators.target import Target

if TYPE_CHECKING:
    from dsl.hardware import Hardware

_TRIES = 4  # nodes that may be lost under one candidate before it is the cluster's fault
_LOOK_S = 5.0  # between two looks for nodes that came
_PER_GPU = 2  # one candidate on the device, one on its way there


class NodeJudge:
    """What runs on a node: the evaluator that the run would have here."""

    def __init__(self, make: Callable[[int], Any], slots: int) -> None:
        self._judge = make(slots)

    def call(self, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return getattr(self._judge, method)(*arguments, **named)

    def close(self) -> None:
        self._judge.close()


@dataclass
class _Seat:
    """A judge on a node, and how many candidates it has."""

    node: str
    actor: Any
    slots: int
    used: int = 0
    lost: bool = False


class ClusterEvaluator:
    """An evaluator (`evaluators.protocol.Evaluator`) that has its work done on a Ray cluster.

    address: "ray" for the cluster that this machine belongs to (`ray start`), "ray://HOST[:PORT]" for a remote one by
    Ray's client. make: jobs -> the evaluator of a node; it travels by cloudpickle. devices: one judge for each GPU,
    leased from Ray, instead of one for each node. Raises Unavailable where there is no such cluster, or no Ray here.
    """

    def __init__(
        self, address: str, make: Callable[[int], Any], *, devices: bool = False, wait_s: float = 60.0
    ) -> None:
        self.stands_for = make(1)  # whose verdicts these are; it starts nothing before its first candidate
        self._make = make
        self._devices = devices
        self._wait_s = wait_s
        self._ray = _connected(address)
        self._seats: list[_Seat] = []
        self._changed = threading.Condition()
        self._looked = 0.0
        self._closed = False
        with self._changed:
            self._look()
        if not self._seats:
            self.close()
            need = "GPUs" if devices else "processors"
            raise Unavailable(f"the Ray cluster has no node with free {need}; `ray status` shows what it has")

    @property
    def slots(self) -> int:
        """Candidates that the cluster judges at once, as it is now."""
        with self._changed:
            return sum(s.slots for s in self._seats if not s.lost)

    def evaluate(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        """As the evaluator of a node does; UNAVAILABLE where nodes were lost under it again and again."""
        return self._on_a_node("evaluate", text, target, hardware)

    def preview(self, text: str, target: Target, hardware: Hardware) -> Evaluation:
        return self._on_a_node("preview", text, target, hardware)

    def promote(self, text: str, target: Target, hardware: Hardware, versus: str | None = None) -> Evaluation:
        return self._on_a_node("promote", text, target, hardware, versus=versus)

    def __getattribute__(self, name: str) -> Any:
        # The optional methods of the protocol are there where the evaluator that this stands for has them.
        if name in ("preview", "promote") and not hasattr(object.__getattribute__(self, "stands_for"), name):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def close(self) -> None:
        with self._changed:
            if self._closed:
                return
            self._closed = True
            seats, self._seats = self._seats, []
            self._changed.notify_all()
        for seat in seats:
            with contextlib.suppress(Exception):
                self._ray.get(seat.actor.close.remote(), timeout=5)
            with contextlib.suppress(Exception):
                self._ray.kill(seat.actor)
        self.stands_for.close()
        self._ray.shutdown()

    # -- seats -------------------------------------------------------------------------------------------------------

    def _on_a_node(self, method: str, text: str, target: Target, hardware: Hardware, **named: Any) -> Evaluation:
        _by_value(target, type(self.stands_for))
        told = ""
        for _ in range(_TRIES):
            seat = self._take()
            if seat is None:
                told = told or "no node of the Ray cluster is left"
                break
            try:
                found: Evaluation = self._ray.get(seat.actor.call.remote(method, (text, target, hardware), named))
                return found
            except self._ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except (self._ray.exceptions.RayError, ConnectionError) as error:
                told = f"the node {seat.node[:8]} was lost ({type(error).__name__})"
                self._lose(seat)
            finally:
                self._give(seat)
        return Evaluation(status=Status.UNAVAILABLE, mode="none", message=f"{told}; `ray status` shows the cluster")

    def _take(self) -> _Seat | None:
        """A seat with room, the emptiest first; waits for one. None where the cluster has had none for a while."""
        end = time.monotonic() + self._wait_s
        with self._changed:
            while not self._closed:
                if time.monotonic() - self._looked > _LOOK_S:
                    self._look()
                free = [s for s in self._seats if not s.lost and s.used < s.slots]
                if free:
                    seat = min(free, key=lambda s: s.used / s.slots)
                    seat.used += 1
                    return seat
                if any(not s.lost for s in self._seats):
                    end = time.monotonic() + self._wait_s  # they are busy, not gone
                elif time.monotonic() > end:
                    return None
                self._changed.wait(1.0)
        return None

    def _give(self, seat: _Seat) -> None:
        with self._changed:
            seat.used -= 1
            self._changed.notify_all()

    def _lose(self, seat: _Seat) -> None:
        with contextlib.suppress(Exception):  # it may be the way there that broke: nobody is to work on unheard
            self._ray.kill(seat.actor)
        with self._changed:
            seat.lost = True
            self._seats = [s for s in self._seats if s is not seat]
            self._looked = 0.0

    def _look(self) -> None:
        """Seats on nodes that have none yet. Called with the lock held."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._looked = time.monotonic()
        for node in self._ray.nodes():
            name, has = node["NodeID"], node.get("Resources", {})
            if not node["Alive"]:
                continue
            gpus, cpus = int(has.get("GPU", 0)), int(has.get("CPU", 0))
            wanted = gpus if self._devices else min(1, cpus)
            there = sum(s.node == name for s in self._seats)
            for _ in range(there, wanted):
                share = cpus // gpus if self._devices else cpus
                slots = _PER_GPU if self._devices else cpus
                actor = (
                    self._ray.remote(NodeJudge)
                    .options(
                        num_cpus=share,
                        num_gpus=1 if self._devices else 0,
                        max_concurrency=slots + 1,
                        max_restarts=0,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=name, soft=False),
                    )
                    .remote(self._make, slots)
                )
                self._seats.append(_Seat(name, actor, slots))
        self._changed.notify_all()


def _connected(address: str) -> Any:
    try:
        import ray
    except ImportError as error:
        raise Unavailable("a cluster needs Ray: pip install 'avo-kernels[ray]'") from error
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False, "namespace": "avo"}
    try:
        ray.init(address="auto" if address == "ray" else address, ignore_reinit_error=True, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        how = "`ray start --head` makes one here" if address == "ray" else "is its port for clients (10001) reachable?"
        raise Unavailable(f"no Ray cluster at {address}: {' '.join(str(error).split())[:200]}; {how}") from None
    return ray


def _by_value(target: Target, kind: type) -> None:
    """A person's own file is a module that no node can import: what is from it travels whole."""
    from ray import cloudpickle

    for thing in (target.reference, target.make_inputs, kind):
        name = getattr(thing, "__module__", "") or ""
        module = sys.modules.get(name)
        if module is not None and name.partition(".")[0].startswith("avo_file_"):
            cloudpickle.register_pickle_by_value(module)
