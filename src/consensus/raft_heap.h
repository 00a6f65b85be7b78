/* raft_heap.h: the memory of the raft library, which does not survive a failed allocation, and of
 * libuv.
 *
 * In raft 0.22.1 an allocation that fails leads to double frees and null pointers, at start above
 * all. So it never sees one: the process ends there, with a message. Raft is made to survive that.
 * The same for libuv, which on some failures aborts without a word, and on others tells the raft
 * library. Only a size that no memory has, RAFT_HEAP_MAX or more, is still answered with NULL,
 * since it is a length somebody sent us, and the library checks those. */
#ifndef CONSENSUS_RAFT_HEAP_H
#define CONSENSUS_RAFT_HEAP_H

#include <stddef.h>

#define RAFT_HEAP_MAX ((size_t)1 << 32)

/* For the whole process, any number of times; a program does it before it uses libuv. What was
 * allocated before may be freed after. */
void raft_heap_install(void);

/* Zeroes some of the stack below the caller. The library's backend frees two pointers that it never
 * set when it cannot read its directory (UvList of 0.22.1): they are NULL after this. */
__attribute__((noinline)) void raft_heap_clear_stack(void);

#endif
