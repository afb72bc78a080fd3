/* reduce.cl -- y_s[k] = sum over o, n of f_s[o, k, n] / divisor_s, for s < SUMS.
 *
 * f is read as [OUTER][KEPT][INNER], row by row; what it is says LOAD (card.py): memory, or a program
 * that computes all f_s of an element from what it reads. A block takes one k at a time: thread t adds
 * up elements t, t + THREADS, ... and the block adds the partial sums as a tree, so that the order
 * depends on sizes alone. The thread that has the totals writes them and runs what follows (END).
 *
 * THREADS is a power of two. What it does not do: share one long sum between several blocks.
 */
// uses: math.cl
PROGRAMS

KERNEL(THREADS, 1) void sums(LOAD_READS, SUM_WRITES MORE)
{
    BEGIN
    LOCAL float partial[SUMS * THREADS];
    const int thread = LOCAL_ID(0);
    for (INDEX k = GROUP_ID(0); k < KEPT; k += GROUP_COUNT(0)) {
        float total[SUMS];
        #pragma unroll
        for (int s = 0; s < SUMS; ++s)
            total[s] = 0.0f;
        for (INDEX r = thread; r < (INDEX)OUTER * INNER; r += THREADS) {
            const INDEX i = (r / INNER * KEPT + k) * INNER + r % INNER;
            float f[SUMS];
            LOAD(i, f)
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                total[s] += f[s];
        }
        #pragma unroll
        for (int s = 0; s < SUMS; ++s)
            partial[s * THREADS + thread] = total[s];
        BARRIER();
        for (int stride = THREADS / 2; stride > 0; stride /= 2) {
            if (thread < stride) {
                #pragma unroll
                for (int s = 0; s < SUMS; ++s)
                    partial[s * THREADS + thread] += partial[s * THREADS + thread + stride];
            }
            BARRIER();
        }
        if (thread == 0) {
            float f[SUMS];
            #pragma unroll
            for (int s = 0; s < SUMS; ++s)
                f[s] = partial[s * THREADS];
            DIVIDE
            WRITE_SUMS
            END(k, f)
        }
        BARRIER();
    }
}
