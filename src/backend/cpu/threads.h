/* What every thread of a pool does before its first block. */
#ifndef WEFT_BACKEND_CPU_THREADS_H
#define WEFT_BACKEND_CPU_THREADS_H

/**
 * Tells the OpenMP runtime that the calling thread runs parallel regions alone, so that a oneDNN call made from it
 * computes on this thread and starts no others: the pool's threads are the only ones.
 *
 * It changes the calling thread's setting only. The thread that creates a context is one of them.
 *
 * @collective  none
 */
void weft_i_cpu_thread_start(void);

#endif
