"""Exhaustive search in a small scope: every history of a small world, where the simulation draws some of a large one.

What is real: the coordinator's machine, the agents' machine, the turns around it, the executor and the fenced sink of
the simulation. What is abstract is Kafka, the role loop and time, and why nothing is lost by it:

- **Topics** are what a replay of them gives, and what each reader has not read yet. Replaying gives the same state for
  every order between topics and for a compacted log (guarantee 5, checked by the simulation and by
  tests/unit/coordinator/test_histories.py), so one replay stands for all. Readers read in the order of writing,
  whenever they like; that topics lag behind one another is a fault: from then on any topic's next record may come
  first, records that a newer one of their key follows may be gone (compaction), and an agent may be late to report
  what has become of its tasks.
- **Two owners are one.** The broker lets only the last one who took the role's id commit (the simulation and the tests
  on a real broker check that it does, and that the loop bears it). A fenced owner can do nothing that anybody sees: no
  fact without a commit, no effect before it. So an owner that is killed, fenced, frozen, or left uncertain about a
  commit, *falls*, and the process that takes over begins with a replay. A commit of unknown outcome is a fall just
  after it, one that is lost is a fall just before the input was read.
- **A turn takes one input.** A turn of several inputs is one transaction; readers are given its records one by one
  anyway, and if it fails, the owner falls as it would have before the first of them.
- **Taking over is one step.** What is written between the end that is captured and the announcement comes as input
  after it, as here; what an agent has not read of the announcement it reads later.
- **Time** is that timers may fire whenever they are set. The barrier and the deadline of a prepare are longer than
  anything an agent does: that they run out on one that is alive is a fault. A session that was killed, or frozen past
  its lease, is *lost*: it ends itself before it does anything else, and what it has sent may arrive at the sink ever
  after; the agent's next session begins at once, or not before all others are gone. Retries of tasks come as soon
  as they may.
- **Faults of requests**: the answer is lost; the request arrives at any time after its sender gave it up.
- Bytes are not reported, so no scheduler moves spans by itself: moves are the operator's.

Symmetry is not reduced: agents are given spans in the order of their names, so two worlds that differ by a
permutation of agents do not behave the same, and those that do are few.
"""
