/* parts.cl -- y[i] = parts[0][i] + parts[1][i] + ... + parts[PARTS - 1][i], in this order.
 *
 * The second pass of products whose long sums several blocks share: each has written its part of all
 * SIZE results. Thread t of all handles t, t + all, ...: neighbours read neighbours.
 */
// uses: math.cl
PROGRAMS

KERNEL(THREADS, 1) void add_parts(READ(float, parts), WRITE(float, y) MORE)
{
    BEGIN
    for (INDEX i = (INDEX)GROUP_ID(0) * THREADS + LOCAL_ID(0); i < SIZE;
         i += (INDEX)GROUP_COUNT(0) * THREADS) {
        float total = parts[i];
        for (int s = 1; s < PARTS; ++s)
            total += parts[(INDEX)s * SIZE + i];
        STORE(i, total)
    }
}
