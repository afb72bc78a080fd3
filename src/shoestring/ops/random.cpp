// Random numbers from a counter: Philox4x32-10 (Salmon et al. 2011). Four elements per counter
// value; see ops/random.py.
//
//     uniform    buffers key (uint64[2] = seed, draw), y     integers count, first
//     normal     buffers key, y                              integers count, first
//     bernoulli  buffers key, p, y: y = uniform < p          integers count, first, stride of p (0
//                                                            or 1)
//
// y[i] is element first + i of the draw.
// BLOCK counter values are worked on side by side, so that the ten rounds become vector code. A
// task is a fixed range of elements; none depends on another.
#include "../backends/cpu/kernel.h"

namespace shoestring {
namespace SHOESTRING_ISA {
namespace {

constexpr int64_t BLOCK = 16, WORDS = 4 * BLOCK, TASK = 256 * WORDS;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// word[4j + w] of counters first_block + j, j < BLOCK
void random_words(const uint64_t* key, uint64_t first_block, uint32_t* word) {
    for (int64_t j = 0; j < BLOCK; ++j) {
        const uint64_t counter = first_block + static_cast<uint64_t>(j);
        uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
        uint32_t c2 = static_cast<uint32_t>(key[1]), c3 = static_cast<uint32_t>(key[1] >> 32);
        uint32_t k0 = static_cast<uint32_t>(key[0]), k1 = static_cast<uint32_t>(key[0] >> 32);
        for (int round = 0; round < 10; ++round) {
            const uint64_t first = uint64_t(0xD2511F53u) * c0, second = uint64_t(0xCD9E8D57u) * c2;
            c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ k0;
            c1 = static_cast<uint32_t>(second);
            c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ k1;
            c3 = static_cast<uint32_t>(first);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        word[4 * j] = c0;
        word[4 * j + 1] = c1;
        word[4 * j + 2] = c2;
        word[4 * j + 3] = c3;
    }
}

float as_uniform(uint32_t word) {
    return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
}

// log of (word + 1) 2^-32, in (0, 1]. w + 1 = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2
// atanh(z), z = (m-1)/(m+1).
double log_of_word(uint32_t word) {
    const double value = static_cast<double>(word) + 1.0;
    uint64_t bits;
    __builtin_memcpy(&bits, &value, 8);
    const uint64_t shifted = bits - 0x3FE6A09E667F3BCDull;  // the bits of sqrt(1/2)
    const int64_t e = static_cast<int64_t>(shifted) >> 52;
    bits -= static_cast<uint64_t>(e) << 52;
    double m;
    __builtin_memcpy(&m, &bits, 8);
    const double z = (m - 1.0) / (m + 1.0), q = z * z;
    const double series =
        1.0 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11)))));
    return 2.0 * z * series + static_cast<double>(e - 32) * 0.6931471805599453;
}

// cos and sin of 2 pi turn, turn in [0, 1): the nearest quarter turn, and Taylor series for the
// rest, at most pi/4.
void cos_sin(float turn, float* c, float* s) {
    const int32_t quarter = static_cast<int32_t>(turn * 4.0f + 0.5f);
    const float x = (turn - static_cast<float>(quarter) * 0.25f) * 6.2831853071795865f, q = x * x;
    const float sine =
        x * (1.0f + q * (-1.0f / 6 + q * (1.0f / 120 + q * (-1.0f / 5040 + q * (1.0f / 362880)))));
    const float cosine =
        1.0f + q * (-0.5f + q * (1.0f / 24 + q * (-1.0f / 720 + q * (1.0f / 40320))));
    const bool swap = quarter & 1;
    const float a = swap ? sine : cosine, b = swap ? cosine : sine;
    *c = (quarter + 1) & 2 ? -a : a;
    *s = quarter & 2 ? -b : b;
}

// Calls body(block, start, stop, word) for all elements of the draw that are asked for, start to
// stop, WORDS at most at a time: word[i - block] belongs to element i, and block is a multiple of
// WORDS.
template <class Body>
void for_words(const Arguments& a, Body body) {
    const uint64_t* key = static_cast<const uint64_t*>(a.buffers[0]);
    const int64_t count = a.integers[0], first = a.integers[1], end = first + count;
    const int64_t begin = first / WORDS * WORDS;
    parallel_for((end - begin + TASK - 1) / TASK, [&](int64_t task) {
        uint32_t word[WORDS];
        const int64_t from = begin + task * TASK;
        for (int64_t i = from; i < smaller(end, from + TASK); i += WORDS) {
            random_words(key, static_cast<uint64_t>(i) / 4, word);
            body(i, i < first ? first : i, smaller(end, i + WORDS), word);
        }
    });
}

void uniform(const Arguments& a) {
    float* y = static_cast<float*>(a.buffers[1]);
    const int64_t first = a.integers[1];
    for_words(a, [&](int64_t block, int64_t start, int64_t stop, const uint32_t* word) {
        for (int64_t i = start; i < stop; ++i) y[i - first] = as_uniform(word[i - block]);
    });
}

void normal(const Arguments& a) {
    float* y = static_cast<float*>(a.buffers[1]);
    const int64_t first = a.integers[1];
    for_words(a, [&](int64_t block, int64_t start, int64_t stop, const uint32_t* word) {
        float value[WORDS];
        for (int64_t j = 0; j < WORDS / 2; ++j) {
            float c, s;
            cos_sin(as_uniform(word[2 * j + 1]), &c, &s);
            const float r = static_cast<float>(__builtin_sqrt(-2.0 * log_of_word(word[2 * j])));
            value[2 * j] = r * c;
            value[2 * j + 1] = r * s;
        }
        for (int64_t i = start; i < stop; ++i) y[i - first] = value[i - block];
    });
}

void bernoulli(const Arguments& a) {
    const float* p = static_cast<const float*>(a.buffers[1]);
    const int64_t first = a.integers[1], stride = a.integers[2];
    float* y = static_cast<float*>(a.buffers[2]);
    for_words(a, [&](int64_t block, int64_t start, int64_t stop, const uint32_t* word) {
        for (int64_t i = start; i < stop; ++i)
            y[i - first] = as_uniform(word[i - block]) < p[stride * (i - first)] ? 1.0f : 0.0f;
    });
}

}  // namespace
}  // namespace SHOESTRING_ISA
}  // namespace shoestring

SHOESTRING_KERNELS(random, {"uniform", shoestring::SHOESTRING_ISA::uniform},
                   {"normal", shoestring::SHOESTRING_ISA::normal},
                   {"bernoulli", shoestring::SHOESTRING_ISA::bernoulli})
