/* tile.cl -- a block's share of a matrix product: sum[m][n] += sum over k of A[m, k] * B[k, n].
 *
 * The plain version: one thread per result, which reads a row of A and a column of B: 2 reads from
 * memory per multiplication. Here a block of THREADS computes BM x BN results. It brings BK columns of
 * A and BK rows of B at a time into local memory, so that each number from memory serves BN or BM
 * products; and each thread keeps TM x TN sums in registers, so that each number from local memory
 * serves TN or TM. While a pair of tiles is multiplied, the next is on its way from memory into
 * registers (a_next, b_next), and two tiles of each take turns in local memory: one barrier per step.
 *
 *     for t from first to end:   fetch tile t into registers;   multiply tile t - 1;
 *                                put tile t into local memory;  barrier
 *
 * Both tiles are kept with k outside, [k][m] and [k][n], and read as float4: thread (tx, ty) owns
 *
 *     row(i) = i / 4 * (4 THREADS_Y) + 4 ty + i % 4     column(j) = j / 4 * (4 THREADS_X) + 4 tx + j % 4
 *
 * LANES_X x LANES_Y neighbours form a rectangle, so that those who run together read few different
 * places; nothing depends on how many do. Each sum is added up in the order of k alone.
 *
 * Needs BM BN BK TM TN LANES_X LANES_Y: TM, TN multiples of 4, THREADS a multiple of BK, BM * BK and
 * BN * BK multiples of THREADS (product_card.py chooses).
 */
#define THREADS_X (BN / TN)
#define THREADS_Y (BM / TM)
#define THREADS (THREADS_X * THREADS_Y)
#define A_EACH (BM * BK / THREADS) /* elements of a tile that a thread brings */
#define B_EACH (BN * BK / THREADS)
#define A_ROW (BM + 4) /* floats from one k to the next: spreads what is put along k over the banks */
#define B_ROW (BN + 4)
#define A_SPACE (2 * BK * A_ROW / 4) /* float4 of two tiles */
#define B_SPACE (2 * BK * B_ROW / 4)
#define LANES (LANES_X * LANES_Y)
#define TILE_X(tid) ((tid) / LANES % (THREADS_X / LANES_X) * LANES_X + (tid) % LANES_X)
#define TILE_Y(tid) ((tid) / LANES / (THREADS_X / LANES_X) * LANES_Y + (tid) % LANES / LANES_X)
#define OWNED_ROW(i, ty) ((i) / 4 * (4 * THREADS_Y) + 4 * (ty) + (i) % 4)
#define OWNED_COLUMN(j, tx) ((j) / 4 * (4 * THREADS_X) + 4 * (tx) + (j) % 4)

#if defined(__CUDACC__) || defined(FP_FAST_FMAF)
#define MULTIPLY_ADD(a, b, c) fma((a), (b), (c))
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

DEVICE void clear_sums(float sum[TM][TN])
{
    #pragma unroll
    for (int i = 0; i < TM; ++i)
        #pragma unroll
        for (int j = 0; j < TN; ++j)
            sum[i][j] = 0.0f;
}

/* A fetched tile to local memory. along_k: thread t holds elements t, t + THREADS, ... of [row][k],
 * else of [k][row]; rows: how many, BM or BN. */
DEVICE void put_tile(LOCAL_PTR float *tile, const float *next, const int each, const int rows,
                     const int along_k, const int tid)
{
    #pragma unroll
    for (int i = 0; i < each; ++i) {
        const int e = tid + i * THREADS;
        const int k = along_k ? e % BK : e / rows;
        tile[k * (rows + 4) + (along_k ? e / BK : e % rows)] = next[i];
    }
}

/* sum += A tile^T * B tile: an outer product for each k. */
DEVICE void multiply_tiles(float sum[TM][TN], LOCAL_PTR const float4 *a, LOCAL_PTR const float4 *b,
                           const int tx, const int ty)
{
    #pragma unroll
    for (int k = 0; k < BK; ++k) {
        float u[TM], v[TN];
        #pragma unroll
        for (int i = 0; i < TM; i += 4) {
            const float4 w = a[k * (A_ROW / 4) + OWNED_ROW(i, ty) / 4];
            u[i] = w.x; u[i + 1] = w.y; u[i + 2] = w.z; u[i + 3] = w.w;
        }
        #pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const float4 w = b[k * (B_ROW / 4) + OWNED_COLUMN(j, tx) / 4];
            v[j] = w.x; v[j + 1] = w.y; v[j + 2] = w.z; v[j + 3] = w.w;
        }
        #pragma unroll
        for (int i = 0; i < TM; ++i)
            #pragma unroll
            for (int j = 0; j < TN; ++j)
                sum[i][j] = MULTIPLY_ADD(u[i], v[j], sum[i][j]);
    }
}
