# cython: language_level=3, overflowcheck=True
"""Compiled twin of `driver.stall_clock.StallClock`.

The agents read the clock four or five times in a turn, and a silent driver does little else.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t


@cython.overflowcheck(False)
cdef inline int64_t later(int64_t due_ns, int64_t threshold_ns) noexcept nogil:
    """Add a threshold, which is not negative; what is never due never is."""
    return due_ns + threshold_ns if due_ns <= INT64_MAX - threshold_ns else INT64_MAX


@cython.final
@cython.auto_pickle(False)
cdef class StallClock:
    """A monotonic clock that stops while its event loop is blocked."""

    cdef readonly object epoch_ms
    cdef readonly object epoch_ns
    cdef public object stall_log
    cdef readonly int64_t stalled_ns
    cdef object true_ns
    cdef list agents
    cdef object late_agent
    cdef int64_t threshold_ns
    cdef int64_t look_ns
    cdef int64_t late_ns

    def __init__(self, clock, *, int64_t threshold_ns):
        if threshold_ns < 0:
            raise ValueError(f"threshold_ns={threshold_ns} must not be negative")
        self.epoch_ms = clock.epoch_ms
        self.epoch_ns = clock.epoch_ns
        self.stalled_ns = 0
        self.stall_log = None
        self.true_ns = clock.now_ns
        self.threshold_ns = threshold_ns
        self.agents = []
        self.look_ns = INT64_MAX
        self.late_ns = 0
        self.late_agent = ""

    def now_ns(self):
        """Return monotonic time in nanoseconds, without the stalls of the loop."""
        cdef int64_t now_ns = <int64_t>self.true_ns() - self.stalled_ns
        return now_ns if now_ns <= self.look_ns else self.leave_out(now_ns)

    def watch(self, agent):
        """Watch an agent, from its next `expect` on."""
        agent.due_ns = INT64_MAX
        self.agents.append(agent)

    def forget(self, agent):
        """Stop watching an agent that ends."""
        self.agents.remove(agent)

    def expect(self, agent, due_ns):
        """Record when an agent must run; `NEVER_NS` for one that waits for something else."""
        cdef int64_t due
        try:
            due = due_ns
        except OverflowError:
            due = INT64_MAX
        agent.due_ns = due
        self.look_ns = min(self.look_ns, later(due, self.threshold_ns))

    def report(self):
        """Count and log the longest stall since the last report, if there was one.

        The agents call it: reading the clock must do nothing that could fail.
        """
        cdef int64_t late_ns = self.late_ns
        self.late_ns = 0
        if late_ns and self.stall_log is not None:
            self.stall_log.on_pause(late_ns, self.true_ns(), self.late_agent)

    cdef int64_t leave_out(self, int64_t now_ns) except? -1:
        """Leave out the time by which the most overdue agent exceeds the threshold."""
        cdef int64_t late_ns, agent_due_ns, due_ns = INT64_MAX
        overdue = None
        for agent in self.agents:
            agent_due_ns = agent.due_ns
            if agent_due_ns < due_ns:
                overdue, due_ns = agent, agent_due_ns
        if overdue is not None and now_ns - due_ns > self.threshold_ns:
            late_ns = now_ns - due_ns
            if late_ns > self.late_ns:
                self.late_ns, self.late_agent = late_ns, overdue.role_name
            self.stalled_ns += late_ns - self.threshold_ns
            now_ns = due_ns = due_ns + self.threshold_ns
            for agent in self.agents:
                agent.due_ns = max(<int64_t>agent.due_ns, now_ns)
        self.look_ns = later(due_ns, self.threshold_ns)
        return now_ns
