"""Declaration of `word_of`, which another compiled module uses."""

from libc.stdint cimport uint32_t

cdef uint32_t *word_of(Py_buffer *view, Py_ssize_t at) except NULL
