/* matmul.cl -- y[l, m, n] = sum over k of a[l, m, k] * b[l, k, n], l: the leading axes, one after the
 * other.
 *
 * The plain version: for every l, m, n one thread adds up K products. Here by tiles (tile.cl). Strides
 * say where elements lie, so the same text multiplies transposed and sliced matrices: a[l, m, k] at
 * A_AT + m * A_M + k * A_K, b[l, k, n] at B_AT + k * B_K + n * B_N. Tiles are fetched along the
 * axis in which neighbours are neighbours in memory (A_ALONG_K, B_ALONG_K). Outside the matrices a tile
 * holds 0; what is outside the result is computed and not written.
 *
 * Blocks: n fastest, then m, then the SPLITS parts of the sum, then l. With SPLITS > 1 part s adds up
 * EACH tiles and STORE writes it to the s-th of SPLITS results, which parts.cl adds up in order.
 * Thread to output: tile.cl's row(i), column(j) of the block's tile.
 */
// uses: math.cl tile.cl
PROGRAMS

#define STEPS ((K + BK - 1) / BK)
#define TILES_M ((M + BM - 1) / BM)
#define TILES_N ((N + BN - 1) / BN)

KERNEL(THREADS, 1) void matmul(READ(float, a), READ(float, b), WRITE(float, y) MORE)
{
    BEGIN
    LOCAL float4 a_tiles[A_SPACE], b_tiles[B_SPACE];
    float a_next[A_EACH], b_next[B_EACH], sum[TM][TN];
    const int tid = LOCAL_ID(0), tx = TILE_X(tid), ty = TILE_Y(tid);
    const INDEX n0 = (INDEX)(GROUP_ID(0) % TILES_N) * BN;
    const INDEX m0 = (INDEX)(GROUP_ID(0) / TILES_N % TILES_M) * BM;
    const int split = GROUP_ID(0) / (TILES_N * TILES_M) % SPLITS;
    const INDEX l = GROUP_ID(0) / (TILES_N * TILES_M * SPLITS);
    const int first = split * EACH;
    const int end = SPLITS > 1 && first + EACH > STEPS ? STEPS : first + EACH;
    {
        const INDEX i = l;
        POSITIONS
        a += A_AT;
        b += B_AT;
    }
    clear_sums(sum);

    for (int t = first; t <= end; ++t) {
        if (t < end) {
            #pragma unroll
            for (int i = 0; i < A_EACH; ++i) {
                const int e = tid + i * THREADS;
                const INDEX m = m0 + (A_ALONG_K ? e / BK : e % BM);
                const INDEX k = (INDEX)t * BK + (A_ALONG_K ? e % BK : e / BM);
                const bool inside = (M % BM == 0 || m < M) && (K % BK == 0 || k < K);
                a_next[i] = inside ? a[m * A_M + k * A_K] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < B_EACH; ++i) {
                const int e = tid + i * THREADS;
                const INDEX n = n0 + (B_ALONG_K ? e / BK : e % BN);
                const INDEX k = (INDEX)t * BK + (B_ALONG_K ? e % BK : e / BN);
                const bool inside = (N % BN == 0 || n < N) && (K % BK == 0 || k < K);
                b_next[i] = inside ? b[k * B_K + n * B_N] : 0.0f;
            }
        }
        if (t > first)
            multiply_tiles(sum, a_tiles + (t - 1) % 2 * (A_SPACE / 2),
                           b_tiles + (t - 1) % 2 * (B_SPACE / 2), tx, ty);
        if (t < end) {
            put_tile((LOCAL_PTR float *)(a_tiles + t % 2 * (A_SPACE / 2)), a_next, A_EACH, BM,
                     A_ALONG_K, tid);
            put_tile((LOCAL_PTR float *)(b_tiles + t % 2 * (B_SPACE / 2)), b_next, B_EACH, BN,
                     B_ALONG_K, tid);
            BARRIER();
        }
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const INDEX m = m0 + OWNED_ROW(i, ty);
        if (M % BM != 0 && m >= M)
            continue;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const INDEX n = n0 + OWNED_COLUMN(j, tx);
            if (N % BN == 0 || n < N) {
                STORE((l * M + m) * N + n, sum[i][j])
            }
        }
    }
}
