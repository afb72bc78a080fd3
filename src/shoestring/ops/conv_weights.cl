/* conv_weights.cl -- the weight gradient of a 2-D convolution, with no padded and no unfolded copy.
 *
 *     dw[k, c, r, s] = sum over n, p, q of  dy[n, k, p, q]
 *                                           * x[n, c, p STRIDE_Y + r - TOP, q STRIDE_X + s - LEFT]
 *
 * A weight is used at every pixel of every image, once each, so its gradient collects dy times what it
 * was multiplied with there. As a matrix product: rows k, columns (c, r, s), the sum over pixels
 * (n, p, q). The plain version: one thread per weight walks over all pixels. Here by tiles (tile.cl),
 * fetched along the pixels: a thread brings one pixel of each tile, works out once where that lies, and
 * reads it for its channels of dy and its columns of x; 0 in the padding.
 *
 * The result is small and the sum long, so SPLITS blocks share a sum: part s adds up EACH tiles of BK
 * pixels, STORE writes it to the s-th of SPLITS results, and parts.cl adds these up in order.
 *
 * Blocks: columns fastest, then rows, then splits. Thread to output: tile.cl's row(i), column(j).
 */
// uses: math.cl tile.cl
PROGRAMS

#define PIXELS (P * Q)
#define COLUMNS (C * R * S)
#define TILES_M ((K + BM - 1) / BM)
#define TILES_N ((COLUMNS + BN - 1) / BN)

KERNEL(THREADS, 1) void conv_weights(READ(float, dy), READ(float, x), WRITE(float, y) MORE)
{
    BEGIN
    LOCAL float4 a_tiles[A_SPACE], b_tiles[B_SPACE];
    float a_next[A_EACH], b_next[B_EACH], sum[TM][TN];
    const int tid = LOCAL_ID(0), tx = TILE_X(tid), ty = TILE_Y(tid);
    const int n0 = GROUP_ID(0) % TILES_N * BN;
    const int m0 = GROUP_ID(0) / TILES_N % TILES_M * BM;
    const int split = GROUP_ID(0) / (TILES_N * TILES_M);
    const int first = split * EACH, end = first + EACH < STEPS ? first + EACH : STEPS;
    clear_sums(sum);

    /* the columns that this thread fetches; one outside is given a row that is never inside */
    int tap_y[B_EACH], tap_x[B_EACH];
    INDEX tap_at[B_EACH];
    #pragma unroll
    for (int i = 0; i < B_EACH; ++i) {
        const int column = n0 + tid / BK + i * (THREADS / BK);
        const int r = column % (R * S) / S, s = column % S;
        tap_y[i] = column < COLUMNS ? r : -(1 << 30);
        tap_x[i] = s;
        tap_at[i] = ((INDEX)(column / (R * S)) * H + r) * W + s;
    }

    for (int t = first; t <= end; ++t) {
        if (t < end) {
            const INDEX pixel = (INDEX)t * BK + tid % BK;
            const bool live = (INDEX)N * PIXELS % BK == 0 || pixel < (INDEX)N * PIXELS;
            const INDEX n = pixel / PIXELS;
            const int place = (int)(pixel % PIXELS);
            const int h = place / Q * STRIDE_Y - TOP, v = place % Q * STRIDE_X - LEFT;
            const INDEX dy_at = n * K * PIXELS + place;
            const INDEX x_at = (n * C * H + h) * W + v;
            #pragma unroll
            for (int i = 0; i < A_EACH; ++i) {
                const int k = m0 + tid / BK + i * (THREADS / BK);
                const bool inside = live && (K % BM == 0 || k < K);
                a_next[i] = inside ? dy[dy_at + (INDEX)k * PIXELS] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < B_EACH; ++i) {
                const int row = h + tap_y[i], column = v + tap_x[i];
                const bool inside =
                    live && row >= 0 && row < H && column >= 0 && column < W;
                b_next[i] = inside ? x[x_at + tap_at[i]] : 0.0f;
            }
        }
        if (t > first)
            multiply_tiles(sum, a_tiles + (t - 1) % 2 * (A_SPACE / 2),
                           b_tiles + (t - 1) % 2 * (B_SPACE / 2), tx, ty);
        if (t < end) {
            put_tile((LOCAL_PTR float *)(a_tiles + t % 2 * (A_SPACE / 2)), a_next, A_EACH, BM, 1,
                     tid);
            put_tile((LOCAL_PTR float *)(b_tiles + t % 2 * (B_SPACE / 2)), b_next, B_EACH, BN, 1,
                     tid);
            BARRIER();
        }
    }

    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int k = m0 + OWNED_ROW(i, ty);
        if (K % BM != 0 && k >= K)
            continue;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int column = n0 + OWNED_COLUMN(j, tx);
            if (COLUMNS % BN == 0 || column < COLUMNS) {
                STORE((INDEX)k * COLUMNS + column, sum[i][j])
            }
        }
    }
}
