/* conv.cl -- 2-D convolution and its input gradient, with no padded and no unfolded copy.
 *
 *     conv2d             y[n, k, p, q]  = sum over c, r, s of  w[k, c, r, s]
 *                                         * x[n, c, p STRIDE_Y + r - TOP, q STRIDE_X + s - LEFT]
 *     conv2d_input_grad  dx[n, c, h, v] = sum over k, r, s of  w[k, c, r, s] * dy[n, k, p, q]
 *                                         over the p, q with p STRIDE_Y + r - TOP = h, and so for v
 *
 * Both are matrix products: rows are the channels of the result, columns its pixels (n, place), and a
 * sum runs over (channel, tap) of what is read. The plain version: one thread per result walks over
 * channels and taps. Here by tiles (tile.cl); the columns of B are never stored: a thread works out
 * where the element lies that it fetches, and takes 0 in the padding.
 *
 * The gradient reads dy at p = (h + TOP - r) / STRIDE_Y, where that is whole: only taps with r = h + TOP
 * modulo STRIDE_Y meet row h. So pixels are sorted into classes by this remainder (SPAN_Y * SPAN_X of
 * them; the forward direction has one), and each class is a product over its own taps: no product with
 * zeros. In a class, pixel i and tap j (r = rest + j SPAN_Y) meet at
 *
 *     conv2d             p = i,                                   row i STRIDE_Y - TOP + j of x
 *     conv2d_input_grad  h = (start + i) STRIDE_Y + rest - TOP,   row start + i - j of dy
 *
 * start being the smallest for which h >= 0. One text for both: row = start + i MOVE_Y + j TURN.
 *
 * TOGETHER: a tile holds BK channels of one tap, so that where it lies is worked out once per tile;
 * else (few channels) the (channel, tap) pairs stand in one row.
 *
 * Blocks: pixels fastest, then channels of the result, then SPLITS parts of the sum, then classes.
 * Thread to output: tile.cl's row(i), column(j) of the block's tile.
 *
 * Needs: IMAGES; IN_C IN_H IN_W of what is read, OUT_C OUT_H OUT_W of the result; W_OUT W_IN: strides of
 * w along their channels; R S TOP LEFT; FORWARD; SPAN_ MOVE_ of Y and X, TURN; TILES_M TILES_N SPLITS EACH.
 */
// uses: math.cl tile.cl
PROGRAMS

#define CEIL(a, b) (((a) + (b) - 1) / (b))

KERNEL(THREADS, 1) void conv(READ(float, in), READ(float, w), WRITE(float, y) MORE)
{
    BEGIN
    LOCAL float4 a_tiles[A_SPACE], b_tiles[B_SPACE];
    float a_next[A_EACH], b_next[B_EACH], sum[TM][TN];
    const int tid = LOCAL_ID(0), tx = TILE_X(tid), ty = TILE_Y(tid);
    const INDEX n0 = (INDEX)(GROUP_ID(0) % TILES_N) * BN;
    const int m0 = GROUP_ID(0) / TILES_N % TILES_M * BM;
    const int split = GROUP_ID(0) / (TILES_N * TILES_M) % SPLITS;
    const int kind = GROUP_ID(0) / (TILES_N * TILES_M * SPLITS);

    /* the class: its taps, its pixels, and its sum */
    const int rest_y = kind / SPAN_X, rest_x = kind % SPAN_X;
    const int taps_y = CEIL(R - rest_y, SPAN_Y), taps_x = CEIL(S - rest_x, SPAN_X);
    const int start_y = FORWARD ? -TOP : CEIL(TOP - rest_y, SPAN_Y);
    const int start_x = FORWARD ? -LEFT : CEIL(LEFT - rest_x, SPAN_X);
    const int first_y = FORWARD ? 0 : start_y * SPAN_Y + rest_y - TOP;
    const int first_x = FORWARD ? 0 : start_x * SPAN_X + rest_x - LEFT;
    const int rows = CEIL(OUT_H - first_y, SPAN_Y), columns = CEIL(OUT_W - first_x, SPAN_X);
    const INDEX pixels = (INDEX)rows * columns, all = IMAGES * pixels;
    const int taps = taps_y * taps_x;
    const int steps = TOGETHER ? CEIL(IN_C, BK) * taps : CEIL(IN_C * taps, BK);
    const int first = split * EACH, end = steps < first + EACH ? steps : first + EACH;
    if (n0 >= all)
        return;

    /* the pixel whose elements this thread fetches */
    const INDEX pixel = n0 + tid % BN;
    const int in_y = start_y + (int)(pixel % pixels) / columns * MOVE_Y;
    const int in_x = start_x + (int)(pixel % pixels) % columns * MOVE_X;
    const GLOBAL float *image = in + pixel / pixels * ((INDEX)IN_C * IN_H * IN_W);
    clear_sums(sum);

    for (int t = first; t <= end; ++t) {
        if (t < end) {
            const int k = TOGETHER ? t / taps * BK + tid % BK : (t * BK + tid % BK) / taps;
            const int tap = TOGETHER ? t % taps : (t * BK + tid % BK) % taps;
            const INDEX at = (INDEX)k * W_IN + (rest_y + tap / taps_x * SPAN_Y) * S + rest_x +
                             tap % taps_x * SPAN_X;
            #pragma unroll
            for (int i = 0; i < A_EACH; ++i) {
                const int m = m0 + tid / BK + i * (THREADS / BK);
                a_next[i] = k < IN_C && m < OUT_C ? w[(INDEX)m * W_OUT + at] : 0.0f;
            }
            #pragma unroll
            for (int i = 0; i < B_EACH; ++i) {
                const int e = tid / BN + i * (THREADS / BN);
                const int c = TOGETHER ? t / taps * BK + e : (t * BK + e) / taps;
                const int j = TOGETHER ? t % taps : (t * BK + e) % taps;
                const int row = in_y + j / taps_x * TURN, column = in_x + j % taps_x * TURN;
                const bool inside = c < IN_C && pixel < all && row >= 0 && row < IN_H &&
                                    column >= 0 && column < IN_W;
                b_next[i] = inside ? image[((INDEX)c * IN_H + row) * IN_W + column] : 0.0f;
            }
        }
        if (t > first)
            multiply_tiles(sum, a_tiles + (t - 1) % 2 * (A_SPACE / 2),
                           b_tiles + (t - 1) % 2 * (B_SPACE / 2), tx, ty);
        if (t < end) {
            put_tile((LOCAL_PTR float *)(a_tiles + t % 2 * (A_SPACE / 2)), a_next, A_EACH, BM, 1,
                     tid);
            put_tile((LOCAL_PTR float *)(b_tiles + t % 2 * (B_SPACE / 2)), b_next, B_EACH, BN, 0,
                     tid);
            BARRIER();
        }
    }

    #pragma unroll
    for (int j = 0; j < TN; ++j) {
        const INDEX own = n0 + OWNED_COLUMN(j, tx);
        if (own >= all)
            continue;
        const int out_y = first_y + (int)(own % pixels) / columns * SPAN_Y;
        const int out_x = first_x + (int)(own % pixels) % columns * SPAN_X;
        const INDEX at = (own / pixels * OUT_C * OUT_H + out_y) * OUT_W + out_x;
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            const int m = m0 + OWNED_ROW(i, ty);
            if (m < OUT_C) {
                STORE(at + (INDEX)m * (OUT_H * OUT_W), sum[i][j])
            }
        }
    }
}
