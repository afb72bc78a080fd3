/* elementwise.cl -- y[i] = f(a[i], b[i], ...): one program of elementwise.py, one pass over memory.
 *
 * Thread t of all T handles elements t, t + T, t + 2 T, ... of SIZE, UNROLL of them at a time, so that
 * neighbours read neighbours and several reads are under way at once. The renderer
 * (card.py) writes the program into these words:
 *
 *     PARAMETERS   READ(type, x0), ..., WRITE(type, y)
 *     BEGIN        AT(x0); ... AT(y);
 *     POSITIONS    the element's place along each axis, if an input does not lie as the output does
 *     BODY         const float v0 = x0[i]; const float v1 = v0 > 0 ? v0 : 0; y[i] = v1;
 *
 * Does no reductions: those read the same programs (reduce_program.cl).
 */
// uses: math.cl
KERNEL(THREADS, 1) void elementwise(PARAMETERS)
{
    BEGIN
    const INDEX all = (INDEX)GROUP_COUNT(0) * THREADS;
    const INDEX first = (INDEX)GROUP_ID(0) * THREADS + LOCAL_ID(0);
    for (INDEX start = first; start < SIZE; start += all * UNROLL) {
        #pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            const INDEX i = start + u * all;
            if (i < SIZE) {
                POSITIONS
                BODY
            }
        }
    }
}
