// What emulated kernels call. Addresses are addresses of this process; `argument` is a buffer's number, or -1 where
// the compiler does not know it. Loads and stores themselves are compiled into the kernel, except those that are
// checked stores to global memory.
#pragma once
#include "emulator.h"

using tw::emulator::Site;
using tw::emulator::Thread;

extern "C" {

// Checks, in checked kernels only.
void twe_index(Thread *thread, Site site, int32_t dimension, int64_t index, int64_t lanes, int64_t extent);
void twe_load_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes, uint32_t alignment);
void twe_store_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes, uint32_t alignment);
void twe_load_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                     uint32_t alignment);
void twe_store_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes,
                      uint32_t alignment, const void *value);
void twe_atomic_shared(Thread *thread, Site site, uint64_t address, uint32_t bytes);
void twe_atomic_global(Thread *thread, Site site, int32_t argument, uint64_t address, uint32_t bytes);

// Threads that meet.
void twe_barrier(Thread *thread, Site site);
void twe_named_barrier(Thread *thread, Site site, uint32_t id, uint32_t threads);
void twe_named_barrier_arrive(Thread *thread, Site site, uint32_t id, uint32_t threads);
void twe_cluster_sync(Thread *thread, Site site);
uint32_t twe_cluster_rank(Thread *thread);
// The value in the low half, whether its lane is inside of the width in bit 32. Modes: 0 xor, 1 up, 2 down, 3 idx.
uint64_t twe_shuffle(Thread *thread, Site site, uint32_t value, uint32_t mode, uint32_t offset, uint32_t width);

// Waits for the kernels launched before this one, of which an emulated launch has none.
void twe_grid_dependency_wait(Thread *thread, Site site);

// Global memory between blocks.
void twe_thread_fence(Thread *thread, Site site);
void twe_nanosleep(Thread *thread, Site site);
int32_t twe_load_acquire(Thread *thread, Site site, int32_t argument, uint64_t address);
void twe_store_release(Thread *thread, Site site, int32_t argument, uint64_t address, int32_t value);
int32_t twe_atomic_add(Thread *thread, Site site, int32_t argument, uint64_t address, int32_t value, int32_t acq_rel);

// Asynchronous copies of single threads.
void twe_copy_async(Thread *thread, Site site, int32_t argument, uint64_t target, uint64_t source, uint32_t bytes,
                    uint32_t source_bytes);
void twe_copy_commit(Thread *thread, Site site);
void twe_copy_wait(Thread *thread, Site site, uint32_t groups);

// Barriers in shared memory, and fences between proxies.
void twe_mbarrier_init(Thread *thread, Site site, uint64_t barrier, uint32_t count);
void twe_mbarrier_expect_tx(Thread *thread, Site site, uint64_t barrier, uint32_t bytes);
void twe_mbarrier_arrive(Thread *thread, Site site, uint64_t barrier);
void twe_mbarrier_arrive_cluster(Thread *thread, Site site, uint64_t barrier, uint32_t block_rank);
void twe_mbarrier_wait(Thread *thread, Site site, uint64_t barrier, uint32_t parity);
void twe_fence_mbarrier_init(Thread *thread, Site site);
void twe_fence_async(Thread *thread, Site site);

// Boxes of tensors; `mask` 0 is no multicast.
void twe_tma_load(Thread *thread, Site site, uint64_t target, const void *map, uint64_t barrier, uint32_t mask,
                  uint32_t rank, int32_t c0, int32_t c1, int32_t c2, int32_t c3, int32_t c4);
void twe_tma_store(Thread *thread, Site site, const void *map, uint64_t source, uint32_t rank, int32_t c0, int32_t c1,
                   int32_t c2, int32_t c3, int32_t c4);
void twe_bulk_commit(Thread *thread, Site site);
void twe_bulk_wait(Thread *thread, Site site, uint32_t groups, uint32_t read);

// Matrices. Element types: 0 f16, 1 bf16, 2 tf32 (and f32), 3 i8, 4 u8.
void twe_ldmatrix(Thread *thread, Site site, uint64_t row, uint32_t tiles, uint32_t transpose, uint32_t *registers);
void twe_stmatrix(Thread *thread, Site site, uint64_t row, uint32_t transpose, uint32_t r0, uint32_t r1, uint32_t r2,
                  uint32_t r3);
// One m16n8k`k`; accumulators are f32 or i32, or f16 where `half` is 1. Registers as the PTX ISA lays them out.
void twe_mma(Thread *thread, Site site, uint32_t type, uint32_t k, uint32_t half, const void *a, const void *b,
             const void *c, void *d);
void twe_mma_m8n8k4(Thread *thread, Site site, uint32_t a_column, uint32_t b_column, const void *a, const void *b,
                    const float *c, float *d);
// `a` and `b` describe matrices in shared memory as five numbers: contiguous along k, swizzle, leading, stride and
// step bytes. Accumulators are read and replaced; `registers` is a, where it is not in shared memory.
void twe_wgmma(Thread *thread, Site site, uint32_t *accumulators, uint32_t n, uint32_t k_steps, uint32_t type,
               uint32_t scale_d, uint64_t a, const int32_t *a_layout, const uint32_t *registers, uint64_t b,
               const int32_t *b_layout);
void twe_wgmma_wait(Thread *thread, Site site, uint32_t *accumulators, uint32_t count, uint32_t groups);
}
