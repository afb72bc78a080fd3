/* dialect.h -- the words in which kernels for graphics cards are written: C99 plus these.
 *
 * NVRTC compiles them as CUDA C++, any OpenCL 1.2 compiler as OpenCL C. Shapes, tile sizes and fused
 * expressions arrive as #defines, which source.py puts in front.
 *
 *     KERNEL(x, y) void f(READ(float, a), WRITE(float, b))    blocks of x * y threads
 *     READ(type, name)    memory that is only read          } parameters; a kernel's first statement is
 *     WRITE(type, name)   memory that is written            } AT(name); for each of them: where in its
 *     UPDATE(type, name)  memory that is read and written   } slab it begins (OpenCL has no pointers)
 *     DEVICE float g(float v)      a function of the file
 *     GLOBAL float *p              a pointer to device memory, for such functions
 *     LOCAL float tile[64];        memory that a block shares; declared in the kernel's body
 *     LOCAL_PTR float *p           a pointer into it
 *     CONSTANT float w[2] = {..};  a table at file scope
 *     GROUP_ID(d) LOCAL_ID(d) GROUP_COUNT(d)                  int; d is the literal 0, 1 or 2
 *     BARRIER()                    reached by all threads of a block or by none
 *     FLOAT4(a, b, c, d)  LOAD4(p)  STORE4(p, v)              p is a multiple of 16 bytes
 *     AS_UINT32(f)  AS_FLOAT(u)    the same bits
 *     MULTIPLY_HIGH(a, b)          the upper half of the product of two uint32
 *     INDEX                        what counts elements: int, or int64 beyond 2^31 - 1
 *
 * Rules: float constants end in f (or CUDA computes in double and OpenCL refuses); no arithmetic on
 * whole float4 values; no `long`, whose size differs; nothing about the width of a warp; fma() where
 * it is meant, since the compilers contract nothing.
 */
#ifndef INDEX
#define INDEX int
#endif
#ifdef ALIASED /* an output lies over an input: element by element, so no order is broken */
#define ALONE
#else
#define ALONE RESTRICT
#endif

#ifdef __CUDACC__

#define KERNEL(x, y) extern "C" __global__ __launch_bounds__((x) * (y))
#define DEVICE static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define LOCAL_PTR
#define CONSTANT __constant__ const
#define RESTRICT __restrict__
#define READ(type, name) const type* ALONE name
#define WRITE(type, name) type* ALONE name
#define UPDATE(type, name) type* ALONE name
#define AT(name)
#define DIALECT_0 x
#define DIALECT_1 y
#define DIALECT_2 z
#define DIALECT_JOIN(a, b) a##b
#define GROUP_ID(d) ((int)blockIdx.DIALECT_JOIN(DIALECT_, d))
#define LOCAL_ID(d) ((int)threadIdx.DIALECT_JOIN(DIALECT_, d))
#define GROUP_COUNT(d) ((int)gridDim.DIALECT_JOIN(DIALECT_, d))
#define BARRIER() __syncthreads()

typedef unsigned char uchar;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

#define FLOAT4(a, b, c, d) make_float4(a, b, c, d)
#define LOAD4(p) (*(const float4*)(p))
#define STORE4(p, v) (*(float4*)(p) = (v))
#define AS_UINT32(f) __float_as_uint(f)
#define AS_FLOAT(u) __uint_as_float(u)
#define MULTIPLY_HIGH(a, b) __umulhi(a, b)
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fc00000)

#else

#pragma OPENCL FP_CONTRACT OFF
#define KERNEL(x, y) __kernel __attribute__((reqd_work_group_size(x, y, 1)))
#define DEVICE static inline
#define GLOBAL __global
#define LOCAL __local
#define LOCAL_PTR __local
#define CONSTANT __constant
#define RESTRICT restrict
#define READ(type, name) const __global type *ALONE name, const ulong name##_at
#define WRITE(type, name) __global type *ALONE name, const ulong name##_at
#define UPDATE(type, name) __global type *ALONE name, const ulong name##_at
#define AT(name) name += name##_at
#define GROUP_ID(d) ((int)get_group_id(d))
#define LOCAL_ID(d) ((int)get_local_id(d))
#define GROUP_COUNT(d) ((int)get_num_groups(d))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

typedef uint uint32;
typedef long int64;
typedef ulong uint64;

#define FLOAT4(a, b, c, d) ((float4)(a, b, c, d))
#define LOAD4(p) vload4(0, (p))
#define STORE4(p, v) vstore4((v), 0, (p))
#define AS_UINT32(f) as_uint(f)
#define AS_FLOAT(u) as_float(u)
#define MULTIPLY_HIGH(a, b) mul_hi((uint)(a), (uint)(b))

#endif
