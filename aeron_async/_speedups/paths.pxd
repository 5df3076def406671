"""Declaration of `WakeFlag`, which another compiled module extends."""


cdef class WakeFlag:
    cdef public bint is_set
    cdef public object callback

    cpdef set(self)
