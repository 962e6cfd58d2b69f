// Which libcupti is tried first, what host calls are called, and the pool of buffers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "cupti/buffer_pool.h"
#include "cupti/calls.h"
#include "cupti/find_cupti.h"
#include "cupti/names.h"

namespace {

using namespace ai_prof;
using namespace ai_prof::cupti;

const std::string kTorch = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so";
const std::string kWheel13 = "/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libcupti.so.13";
const std::string kWheel12 = "/venv/lib/python3.12/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12";

void the_one_asked_for_stands_alone() {
  CHECK(cupti_candidates("/my/libcupti.so", {"/usr/lib/libcupti.so.13"}, 13000) ==
        std::vector<std::string>{"/my/libcupti.so"});
}

void the_loaded_one_comes_first() {
  const auto tried =
      cupti_candidates("", {"/usr/bin/python3", "/opt/cuda/libcupti.so.2026.1", kTorch}, 13000);
  CHECK(tried.at(0) == "/opt/cuda/libcupti.so.2026.1");
  CHECK(tried.at(1) == kWheel13 && tried.at(2) == kWheel12);
  CHECK(tried.at(3) == "libcupti.so.13");
}

void an_older_driver_or_runtime_wants_the_older_one() {
  CHECK(cupti_candidates("", {kTorch}, 12040).at(0) == kWheel12);
  CHECK(cupti_candidates("", {kTorch, "/x/libcudart.so.12"}, 13000).at(0) == kWheel12);
  CHECK(cupti_candidates("", {kTorch, "/x/libcudart.so.12", "/x/libcudart.so.13"}, 13000).at(0) == kWheel13);
  CHECK(cupti_candidates("", {}, 0).at(0) == "libcupti.so.13");
}

void this_process_has_its_c_library() {
  const auto loaded = loaded_libraries();
  CHECK(std::ranges::any_of(loaded,
                            [](const auto& path) { return path.find("libc.so") != std::string::npos; }));
  CHECK(std::set<std::string>(loaded.begin(), loaded.end()).size() == loaded.size());
}

void names_are_the_programmers() {
  CHECK(plain_name("cudaLaunchKernel_ptsz_v7000") == "cudaLaunchKernel");
  CHECK(plain_name("__cudaLaunchKernel_v13000") == "cudaLaunchKernel");
  CHECK(plain_name("cuMemcpyHtoDAsync_v2_ptsz") == "cuMemcpyHtoDAsync");
  CHECK(plain_name("cudaMemcpy2D_v3020") == "cudaMemcpy2D");
  CHECK(plain_name("cuMemsetD32_v2") == "cuMemsetD32");
  CHECK(plain_name("v2") == "v2");
  CHECK(demangle("_Z1fi") == "f(int)");
  CHECK(demangle("_Zoops") == "_Zoops");
  CHECK(demangle("triton_poi_fused_0") == "triton_poi_fused_0");
}

// Calls that the table holds by number, as the headers that know them have them.
#define SAME(id, name) static_assert((id) == CUPTI_##name)
#if CUPTI_API_VERSION >= 130000
SAME(505, RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000);
SAME(506, RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000);
SAME(509, RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v13000);
SAME(512, RUNTIME_TRACE_CBID_cudaMemcpy3DBatchAsync_ptsz_v13000);
SAME(501, RUNTIME_TRACE_CBID___cudaInitModule_v13000);
SAME(800, DRIVER_TRACE_CBID_cuCtxSynchronize_v2);
SAME(796, DRIVER_TRACE_CBID_cuMemcpyBatchAsync_v2);
SAME(799, DRIVER_TRACE_CBID_cuMemcpy3DBatchAsync_v2_ptsz);
#endif
#if CUPTI_API_VERSION >= 130200
SAME(534, RUNTIME_TRACE_CBID_cudaExecutionCtxSynchronize_v13010);
SAME(557, RUNTIME_TRACE_CBID_cudaMemcpy3DWithAttributesAsync_ptsz_v13020);
SAME(840, DRIVER_TRACE_CBID_cuMemcpy3DWithAttributesAsync_ptsz);
#endif
#undef SAME

// Ids that were measured or that NVIDIA's documentation names.
void calls_are_found_by_id() {
  const auto runtime = [](std::uint32_t id) { return find_call(CUPTI_ACTIVITY_KIND_RUNTIME, id); };
  const auto driver = [](std::uint32_t id) { return find_call(CUPTI_ACTIVITY_KIND_DRIVER, id); };
  for (const std::uint32_t launch : {211u, 214u, 430u}) CHECK(runtime(launch)->kind == format::kCallLaunch);
  CHECK(driver(307)->kind == format::kCallLaunch && plain_name(driver(307)->name) == "cuLaunchKernel");
  CHECK(runtime(165)->kind == format::kCallSync && runtime(311)->kind == format::kCallGraphLaunch);
  CHECK(runtime(1) == nullptr && runtime(100'000) == nullptr);
  for (const auto& rows : {runtime_calls(), driver_calls()}) {
    std::set<std::uint32_t> ids;
    for (const CallRow& row : rows) ids.insert(row.id);
    CHECK(ids.size() == rows.size());
  }
}

void a_pool_gives_every_slot_once_then_discards() {
  BufferPool pool(8 << 20);
  std::set<std::uint8_t*> given;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < pool.slots(); ++i) given.insert(pool.take(bytes));
  CHECK(given.size() == pool.slots() && pool.slots() == 7);
  std::uint8_t* discard = pool.take(bytes);
  CHECK(discard != nullptr && pool.kind(discard) == BufferPool::Kind::kDiscard);
  for (int i = 0; i < 100; ++i) CHECK(pool.kind(pool.take(bytes)) != BufferPool::Kind::kSlot);
  CHECK(pool.kind(pool.take(bytes)) == BufferPool::Kind::kShared);
  for (std::uint8_t* slot : given) pool.put({slot, 8});
  CHECK(pool.crowded());
  Filled filled{};
  for (; pool.next(filled); pool.release(filled.data)) CHECK(given.erase(filled.data) == 1);
  CHECK(given.empty() && !pool.crowded());
  CHECK(pool.kind(pool.take(bytes)) == BufferPool::Kind::kSlot);
}

// A buffer never holds more than a round's records, and a fast program soon fills large ones.
void buffers_grow_within_a_round() {
  BufferPool pool(256 << 20);
  std::size_t before = 0;
  std::size_t bytes = 0;
  pool.take(bytes);
  CHECK(bytes == 16 << 10);
  for (int i = 0; i < 60; ++i) {
    before += bytes;
    pool.take(bytes);
    CHECK(bytes <= before);
  }
  CHECK(bytes == 1 << 20);
  pool.round();
  pool.take(bytes);
  CHECK(bytes == 16 << 10);
}

// Pages of `bytes` from `memory` on that are in memory; whole pages only.
std::size_t resident(std::uint8_t* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(bytes / page);
  CHECK(mincore(memory, pages.size() * page, pages.data()) == 0);
  return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](auto p) { return p & 1; }));
}

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, absent in the headers of older C libraries

bool populates() {
  void* memory = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool told = resident(static_cast<std::uint8_t*>(memory), 1 << 16) == 0;  // not by every kernel
  const bool done = told && madvise(memory, 1 << 16, kPopulateWrite) == 0;
  munmap(memory, 1 << 16);
  return done;
}

// A program that the reader keeps up with never touches a new page, and holds few of them.
void memory_is_touched_before_it_is_given() {
  if (!populates()) return;
  BufferPool pool(256 << 20);
  std::set<std::uint8_t*> given;
  pool.warm();
  for (int i = 0; i < 200; ++i) {
    std::size_t bytes = 0;
    std::uint8_t* const buffer = pool.take(bytes);
    given.insert(buffer);
    CHECK(resident(buffer, bytes) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) == bytes);
    pool.put({buffer, bytes});
    if (!pool.crowded()) continue;
    pool.warm();
    Filled filled{};
    while (pool.next(filled)) pool.release(filled.data);
  }
  CHECK(given.size() <= 8);
}

void little_memory_is_touched_for_few_records() {
  if (!populates()) return;
  BufferPool pool(256 << 20);
  std::size_t bytes = 0;
  std::uint8_t* const first = pool.take(bytes);
  pool.warm();
  pool.warm();
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  CHECK(resident(first, pool.slots() << 20) * page <= 256 << 10);
}

}  // namespace

int main() {
  the_one_asked_for_stands_alone();
  the_loaded_one_comes_first();
  an_older_driver_or_runtime_wants_the_older_one();
  this_process_has_its_c_library();
  names_are_the_programmers();
  calls_are_found_by_id();
  a_pool_gives_every_slot_once_then_discards();
  memory_is_touched_before_it_is_given();
  little_memory_is_touched_for_few_records();
  buffers_grow_within_a_round();
  return test::verdict();
}
