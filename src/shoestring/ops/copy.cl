/* copy.cl -- y[OFFSET + sum_k p_k t_k] = x[sum_k p_k s_k] for all p: elements from one layout to another.
 *
 * Thread t of all T moves elements t, t + T, ... of SIZE, counted in the order in which they lie in y.
 * FROM and TO are the places of element i, written by copy_card() as sums over its position along
 * each axis. `zero` clears SIZE elements of y before copies that do not fill it.
 */
KERNEL(THREADS, 1) void copy(READ(TYPE, x), WRITE(TYPE, y))
{
    AT(x);
    AT(y);
    const INDEX all = (INDEX)GROUP_COUNT(0) * THREADS;
    for (INDEX i = (INDEX)GROUP_ID(0) * THREADS + LOCAL_ID(0); i < SIZE; i += all) {
        POSITIONS
        y[TO] = x[FROM];
    }
}

KERNEL(THREADS, 1) void zero(WRITE(TYPE, y))
{
    AT(y);
    const INDEX all = (INDEX)GROUP_COUNT(0) * THREADS;
    for (INDEX i = (INDEX)GROUP_ID(0) * THREADS + LOCAL_ID(0); i < SIZE; i += all)
        y[i] = 0;
}
