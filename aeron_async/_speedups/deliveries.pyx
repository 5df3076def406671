# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""What gives messages to functions: the compiled part of `client.message_delivery`."""

cimport cython

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1

DEF MESSAGES_PER_TURN = 64
"""Most messages that a handler gets in a row; see `client.message_delivery`."""


@cython.auto_pickle(False)
cdef class Delivering:
    """The compiled part of a delivery; twin of `client.message_delivery.Delivering`."""

    def wake(self):
        """Deliver in the next step of the loop, or by `deliver_now`; see the twin."""
        self._is_due = True
        if not self._is_scheduled and (self._events is None or not self._events.is_expecting):
            self.schedule()

    cdef int schedule(self) except -1:
        self._is_scheduled = True
        self._loop.call_soon(self._deliver_scheduled, context=self._context)
        return 0

    def deliver_now(self):
        """Deliver if it was woken, in a callback of the loop that does nothing else any more."""
        if not self._is_due:
            return
        if self._is_calling:
            if not self._is_scheduled:
                self.schedule()
            return
        context = self._context
        PyContext_Enter(context)
        try:
            self._deliver()
        finally:
            PyContext_Exit(context)

    def done(self):
        """Return whether the loop will call it anyhow."""
        return self._is_scheduled

    def set_result(self, _result):
        """Deliver: there may be more to read."""
        self.wake()

    def set_exception(self, _error):
        """Find out that the subscription is closed."""
        self.wake()

    def _watch_no_more(self):
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()

    def _deliver_scheduled(self):
        self._is_scheduled = False
        self._deliver()

    def _deliver(self):
        cdef Py_ssize_t left
        cdef bint is_more = True
        if self._is_over or not self._is_due:
            return
        self._is_due = False
        self._is_calling = True
        if self._unwatch is not None:
            self._watch_no_more()
        try:
            left = self._hand_out_fast(self, MESSAGES_PER_TURN)
            if left < 0:
                left = self._hand_out(~left)
            is_more = left == 0
        except BaseException:
            # A handler has raised what stops the loop, which may be run again.
            if not self._is_over:
                self._put_back()
            raise
        finally:
            self._is_calling = False
            if not self._is_over and (is_more or not self.has_nothing_to_do()):
                self._go_on(is_more=is_more)

    cdef bint has_nothing_to_do(self) except -1:
        """Return whether `_go_on` would do nothing: there is an image, and its driver wakes us."""
        subject = self._subject
        # An image has none.
        turn = getattr(subject, "_turn", None)
        if not turn or subject._is_closed or subject._ready.arm is not None:
            return False
        subject._waits_since_ns = None
        return True

    def __call__(self, message):
        """Call the handler; for `Reading._hand_out_fast`."""
        return self.call(message)

    def _call(self, message):
        return self.call(message)

    cdef bint call(self, message) except -1:
        """Call the handler; return whether it is to get no more."""
        try:
            result = self._handler(message)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._report(error)
            return self._is_over
        if result is not None:
            self._check_result(result)
        return self._is_over
