"""Jobs of one tenant keep their order, the tenants take turns, and a tenant runs no more than its part."""

from booking_server.execution.fair_queue import FairQueue


def filled(per_tenant: int, **jobs: str) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue(per_tenant)
    for tenant, names in jobs.items():
        for name in names:
            queue.put(tenant, name)
    return queue


def taken(queue: FairQueue[str], most: int = 1, lanes: int = 1) -> str:
    return "".join(job for _, job in queue.take_of_one(most, lanes))


def test_tenants_take_turns_however_many_jobs_one_of_them_has() -> None:
    queue = filled(9, a="12345678", b="xy", c="z")
    assert [taken(queue) for _ in range(12)] == ["1", "x", "z", "2", "y", "3", "4", "5", "6", "7", "8", ""]
    assert len(queue) == 0


def test_a_batch_of_all_has_one_job_of_each_tenant_before_a_second_one() -> None:
    queue = filled(9, a="1234", b="x")
    assert queue.take_of_all(4) == [("a", "1"), ("b", "x"), ("a", "2"), ("a", "3")]
    assert len(queue) == 1


def test_a_batch_of_one_tenant_is_its_part_for_a_lane() -> None:
    queue = filled(9, a="12345678", b="xy")
    assert [taken(queue, 4, 2) for _ in range(5)] == ["1234", "x", "56", "y", "7"]


def test_a_tenant_that_runs_its_part_is_passed_over_until_a_batch_ends() -> None:
    queue = filled(2, a="1234", b="xy")
    assert [taken(queue) for _ in range(5)] == ["1", "x", "2", "y", ""]
    assert (len(queue), queue.has_runnable) == (2, False)
    queue.finish(["a"], 1.0)
    assert queue.has_runnable
    assert [taken(queue), taken(queue)] == ["3", ""]


def test_jobs_that_are_put_back_come_before_the_others_of_their_tenant() -> None:
    queue = filled(1, a="12345")
    assert taken(queue, 3) == "123"
    queue.put("a", "3", first=True)
    queue.put("a", "2", first=True)
    queue.finish(["a"], 1.0)
    assert taken(queue, 9) == "2345"


def test_the_expected_wait_is_that_of_the_tenant_itself() -> None:
    queue = filled(2, slow="12345", fast="x")
    queue.take_of_one(1, 9)
    queue.take_of_one(1, 9)
    queue.finish(["slow"], 3.0)
    queue.finish(["fast"], 0.1)
    queue.put("fast", "y")
    assert queue.ahead("slow", 6) == (4, 6.0)
    assert queue.ahead("fast", 6) == (1, 0.0)  # nothing of it was running, so its average was forgotten
    assert queue.ahead("other", 6) == (0, 0.0)


def test_nothing_is_kept_of_a_tenant_without_jobs() -> None:
    queue = filled(2, a="12", b="x")
    while names := [tenant for tenant, _ in queue.take_of_all(1)]:
        queue.finish(names, 0.5)
    assert queue._tenants == {}
