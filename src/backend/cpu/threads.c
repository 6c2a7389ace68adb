/*
 * The one place that speaks to the OpenMP runtime, which oneDNN computes on.
 *
 * The number of threads of a parallel region is a setting of each thread (the nthreads-var of the OpenMP
 * specification, per data environment), so every thread of a pool sets its own. clang without its OpenMP package has
 * no omp.h; the function is the same in every runtime, so it is declared here then.
 */
#include "backend/cpu/threads.h"

#ifdef _OPENMP
#include <omp.h>
#else
void omp_set_num_threads(int n_threads);
#endif

void weft_i_cpu_thread_start(void)
{
    omp_set_num_threads(1);
}
