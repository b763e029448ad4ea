"""What a process remembers of the stores that it has tried."""

from headgate.sinks.lake.store_trials import PLACES_MAX, PassedTrials, Trial


def test_it_is_bounded_and_the_oldest_is_forgotten() -> None:
    passed = PassedTrials()
    trials = [Trial("https://s3.example", f"s3://lake/{number}", is_exclusive=True) for number in range(PLACES_MAX + 1)]
    for trial in trials:
        passed.add(trial)
    assert trials[0] not in passed
    assert all(trial in passed for trial in trials[1:])


def test_a_trial_of_less_is_not_one_of_more() -> None:
    """An Iceberg table needs no files that are created only where there is none."""
    passed = PassedTrials()
    passed.add(Trial("https://s3.example", "s3://lake", is_exclusive=False))
    assert Trial("https://s3.example", "s3://lake", is_exclusive=True) not in passed
