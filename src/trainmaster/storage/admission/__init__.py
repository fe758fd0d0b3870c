"""Admission on one host: processes that share a store ask a broker before they move bytes.

    writer, reader --unix socket--> broker (a thread of the vault; decides by `core/storage/admission.py`)

The socket has an abstract name, made of the user and of where the store lies. So nothing lies in the store, nothing is
left over when a broker dies, and of several that would be broker the kernel lets one. Whoever gets no answer in time
(no broker, a hung one, one of another user) goes on without asking: admission costs order, never a checkpoint.

Limit: a host. Hosts that share a store each keep the shares of their own processes; between hosts a pace is given.
"""
