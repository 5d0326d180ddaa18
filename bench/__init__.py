"""Side-by-side benchmarks of the method, run by ``make bench``; never part of the tests."""
