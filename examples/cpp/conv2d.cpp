// Runs conv2d from C++: the same kernels, the same programs, no Python.
//
//     y[n,k,p,q] = sum over c, r, s of x[n,c,p+r,q+s] w[k,c,r,s]
//
// A program names its kernels and says where their buffers lie, as (base, byte offset); a run gives
// the bases' addresses. The integers are those that ops/conv.py passes, the header of ops/conv.cpp
// names them; the two workspaces are scratch of the kernel.
#include <cmath>
#include <cstdio>

#include "backends/cpu/runtime.h"

using namespace shoestring;

int main() {
    const std::int64_t N = 2, C = 3, H = 9, W = 11, K = 5, R = 3, S = 3;
    const std::int64_t P = H - R + 1, Q = W - S + 1;
    Buffer x(N * C * H * W * sizeof(float)), w(K * C * R * S * sizeof(float));
    Buffer y(N * K * P * Q * sizeof(float)), first(1 << 20), second(1 << 20);
    float* xs = static_cast<float*>(x.data());
    float* ws = static_cast<float*>(w.data());
    for (std::int64_t i = 0; i < N * C * H * W; ++i) xs[i] = static_cast<float>(i * 7 % 23 - 11);
    for (std::int64_t i = 0; i < K * C * R * S; ++i) ws[i] = static_cast<float>(i * 5 % 13 - 6);

    // sizes, stride, padding, images at a time; nothing is attached
    const std::vector<std::int64_t> sizes = {N, C, H, W, K, R, S, P, Q, 1, 1, 0, 0, N};
    const Program program({{"conv2d", {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}}, sizes, {}, {}}});
    program.run({x.address(), w.address(), y.address(), first.address(), second.address()});

    const float* found = static_cast<const float*>(y.data());
    double worst = 0;
    for (std::int64_t n = 0, i = 0; n < N; ++n)
        for (std::int64_t k = 0; k < K; ++k)
            for (std::int64_t p = 0; p < P; ++p)
                for (std::int64_t q = 0; q < Q; ++q, ++i) {
                    double sum = 0;
                    for (std::int64_t c = 0; c < C; ++c)
                        for (std::int64_t r = 0; r < R; ++r)
                            for (std::int64_t s = 0; s < S; ++s)
                                sum += xs[((n * C + c) * H + p + r) * W + q + s] *
                                       ws[((k * C + c) * R + r) * S + s];
                    if (std::fabs(found[i] - sum) > worst) worst = std::fabs(found[i] - sum);
                }
    std::printf("conv2d [%d, %d, %d, %d] on %s, %d threads, %zu bytes: largest error %g\n",
                static_cast<int>(N), static_cast<int>(K), static_cast<int>(P), static_cast<int>(Q),
                isa().c_str(), threads(), peak_bytes(), worst);
    return worst < 1e-3 ? 0 : 1;
}
