#include "cupti/calls.h"

#include <array>

namespace ai_prof::cupti {
namespace {

using enum format::CallKind;

#define RUNTIME(name, kind) {CUPTI_RUNTIME_TRACE_CBID_##name, #name, kind}
#define DRIVER(name, kind) {CUPTI_DRIVER_TRACE_CBID_##name, #name, kind}

// Ids never change meaning. Those newer than the oldest headers that we build with (12.9) stand as numbers.
constexpr CallRow kRuntime[] = {
    RUNTIME(cudaLaunch_v3020, kCallLaunch),
    RUNTIME(cudaLaunchKernel_v7000, kCallLaunch),
    RUNTIME(cudaLaunch_ptsz_v7000, kCallLaunch),
    RUNTIME(cudaLaunchKernel_ptsz_v7000, kCallLaunch),
    RUNTIME(cudaLaunchCooperativeKernel_v9000, kCallLaunch),
    RUNTIME(cudaLaunchCooperativeKernel_ptsz_v9000, kCallLaunch),
    RUNTIME(cudaLaunchCooperativeKernelMultiDevice_v9000, kCallLaunch),
    RUNTIME(cudaLaunchKernelExC_v11060, kCallLaunch),
    RUNTIME(cudaLaunchKernelExC_ptsz_v11060, kCallLaunch),
    {505, "__cudaLaunchKernel_v13000", kCallLaunch},
    {506, "__cudaLaunchKernel_ptsz_v13000", kCallLaunch},
    RUNTIME(cudaGraphLaunch_v10000, kCallGraphLaunch),
    RUNTIME(cudaGraphLaunch_ptsz_v10000, kCallGraphLaunch),
    RUNTIME(cudaThreadSynchronize_v3020, kCallSync),
    RUNTIME(cudaStreamSynchronize_v3020, kCallSync),
    RUNTIME(cudaEventSynchronize_v3020, kCallSync),
    RUNTIME(cudaDeviceSynchronize_v3020, kCallSync),
    RUNTIME(cudaStreamSynchronize_ptsz_v7000, kCallSync),
    {534, "cudaExecutionCtxSynchronize_v13010", kCallSync},
    RUNTIME(cudaMemcpy_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2D_v3020, kCallCopy),
    RUNTIME(cudaMemcpyToArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DToArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpyFromArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DFromArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpyArrayToArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DArrayToArray_v3020, kCallCopy),
    RUNTIME(cudaMemcpyToSymbol_v3020, kCallCopy),
    RUNTIME(cudaMemcpyFromSymbol_v3020, kCallCopy),
    RUNTIME(cudaMemcpyAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpyToArrayAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpyFromArrayAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DToArrayAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpy2DFromArrayAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpyToSymbolAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpyFromSymbolAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpy3D_v3020, kCallCopy),
    RUNTIME(cudaMemcpy3DAsync_v3020, kCallCopy),
    RUNTIME(cudaMemcpyPeer_v4000, kCallCopy),
    RUNTIME(cudaMemcpyPeerAsync_v4000, kCallCopy),
    RUNTIME(cudaMemcpy3DPeer_v4000, kCallCopy),
    RUNTIME(cudaMemcpy3DPeerAsync_v4000, kCallCopy),
    RUNTIME(cudaMemcpy_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2D_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyToArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DToArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyFromArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DFromArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyArrayToArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DArrayToArray_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyToSymbol_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyFromSymbol_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpyAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpyToArrayAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpyFromArrayAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DToArrayAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpy2DFromArrayAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpyToSymbolAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpyFromSymbolAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpy3D_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy3DAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpy3DPeer_ptds_v7000, kCallCopy),
    RUNTIME(cudaMemcpy3DPeerAsync_ptsz_v7000, kCallCopy),
    RUNTIME(cudaMemcpyBatchAsync_v12080, kCallCopy),
    RUNTIME(cudaMemcpyBatchAsync_ptsz_v12080, kCallCopy),
    RUNTIME(cudaMemcpy3DBatchAsync_v12080, kCallCopy),
    RUNTIME(cudaMemcpy3DBatchAsync_ptsz_v12080, kCallCopy),
    {509, "cudaMemcpyBatchAsync_v13000", kCallCopy},
    {510, "cudaMemcpyBatchAsync_ptsz_v13000", kCallCopy},
    {511, "cudaMemcpy3DBatchAsync_v13000", kCallCopy},
    {512, "cudaMemcpy3DBatchAsync_ptsz_v13000", kCallCopy},
    {554, "cudaMemcpyWithAttributesAsync_v13020", kCallCopy},
    {555, "cudaMemcpyWithAttributesAsync_ptsz_v13020", kCallCopy},
    {556, "cudaMemcpy3DWithAttributesAsync_v13020", kCallCopy},
    {557, "cudaMemcpy3DWithAttributesAsync_ptsz_v13020", kCallCopy},
    RUNTIME(cudaMemset_v3020, kCallOther),
    RUNTIME(cudaMemset2D_v3020, kCallOther),
    RUNTIME(cudaMemsetAsync_v3020, kCallOther),
    RUNTIME(cudaMemset2DAsync_v3020, kCallOther),
    RUNTIME(cudaMemset3D_v3020, kCallOther),
    RUNTIME(cudaMemset3DAsync_v3020, kCallOther),
    RUNTIME(cudaMemset_ptds_v7000, kCallOther),
    RUNTIME(cudaMemset2D_ptds_v7000, kCallOther),
    RUNTIME(cudaMemsetAsync_ptsz_v7000, kCallOther),
    RUNTIME(cudaMemset2DAsync_ptsz_v7000, kCallOther),
    RUNTIME(cudaMemset3D_ptds_v7000, kCallOther),
    RUNTIME(cudaMemset3DAsync_ptsz_v7000, kCallOther),
    RUNTIME(cudaMalloc_v3020, kCallAlloc),
    RUNTIME(cudaMallocPitch_v3020, kCallAlloc),
    RUNTIME(cudaMallocArray_v3020, kCallAlloc),
    RUNTIME(cudaMalloc3D_v3020, kCallAlloc),
    RUNTIME(cudaMalloc3DArray_v3020, kCallAlloc),
    RUNTIME(cudaMallocMipmappedArray_v5000, kCallAlloc),
    RUNTIME(cudaMallocManaged_v6000, kCallAlloc),
    RUNTIME(cudaMallocAsync_v11020, kCallAlloc),
    RUNTIME(cudaMallocAsync_ptsz_v11020, kCallAlloc),
    RUNTIME(cudaMallocFromPoolAsync_v11020, kCallAlloc),
    RUNTIME(cudaMallocFromPoolAsync_ptsz_v11020, kCallAlloc),
    RUNTIME(cudaFree_v3020, kCallFree),
    RUNTIME(cudaFreeArray_v3020, kCallFree),
    RUNTIME(cudaFreeMipmappedArray_v5000, kCallFree),
    RUNTIME(cudaFreeAsync_v11020, kCallFree),
    RUNTIME(cudaFreeAsync_ptsz_v11020, kCallFree),
    RUNTIME(cudaMallocHost_v3020, kCallHostAlloc),
    RUNTIME(cudaFreeHost_v3020, kCallHostAlloc),
    RUNTIME(cudaHostAlloc_v3020, kCallHostAlloc),
    RUNTIME(cudaHostRegister_v4000, kCallHostAlloc),
    RUNTIME(cudaHostUnregister_v4000, kCallHostAlloc),
    RUNTIME(cudaLibraryLoadData_v12060, kCallModuleLoad),
    RUNTIME(cudaLibraryLoadFromFile_v12060, kCallModuleLoad),
    {501, "__cudaInitModule_v13000", kCallModuleLoad},
    RUNTIME(cudaGraphInstantiate_v10000, kCallGraphInstantiate),
    RUNTIME(cudaGraphInstantiateWithFlags_v11040, kCallGraphInstantiate),
    RUNTIME(cudaGraphInstantiateWithParams_v12000, kCallGraphInstantiate),
    RUNTIME(cudaGraphInstantiateWithParams_ptsz_v12000, kCallGraphInstantiate),
    RUNTIME(cudaGraphInstantiate_v12000, kCallGraphInstantiate),
};

constexpr CallRow kDriver[] = {
    DRIVER(cuLaunch, kCallLaunch),
    DRIVER(cuLaunchGrid, kCallLaunch),
    DRIVER(cuLaunchGridAsync, kCallLaunch),
    DRIVER(cuLaunchKernel, kCallLaunch),
    DRIVER(cuLaunchKernel_ptsz, kCallLaunch),
    DRIVER(cuLaunchCooperativeKernel, kCallLaunch),
    DRIVER(cuLaunchCooperativeKernel_ptsz, kCallLaunch),
    DRIVER(cuLaunchCooperativeKernelMultiDevice, kCallLaunch),
    DRIVER(cuLaunchKernelEx, kCallLaunch),
    DRIVER(cuLaunchKernelEx_ptsz, kCallLaunch),
    DRIVER(cuGraphLaunch, kCallGraphLaunch),
    DRIVER(cuGraphLaunch_ptsz, kCallGraphLaunch),
    DRIVER(cuCtxSynchronize, kCallSync),
    DRIVER(cuEventSynchronize, kCallSync),
    DRIVER(cuStreamSynchronize, kCallSync),
    DRIVER(cuStreamSynchronize_ptsz, kCallSync),
    {800, "cuCtxSynchronize_v2", kCallSync},
    DRIVER(cuMemcpyHtoD, kCallCopy),
    DRIVER(cuMemcpyDtoH, kCallCopy),
    DRIVER(cuMemcpyDtoD, kCallCopy),
    DRIVER(cuMemcpyDtoA, kCallCopy),
    DRIVER(cuMemcpyAtoD, kCallCopy),
    DRIVER(cuMemcpyHtoA, kCallCopy),
    DRIVER(cuMemcpyAtoH, kCallCopy),
    DRIVER(cuMemcpyAtoA, kCallCopy),
    DRIVER(cuMemcpy2D, kCallCopy),
    DRIVER(cuMemcpy2DUnaligned, kCallCopy),
    DRIVER(cuMemcpy3D, kCallCopy),
    DRIVER(cuMemcpyHtoDAsync, kCallCopy),
    DRIVER(cuMemcpyDtoHAsync, kCallCopy),
    DRIVER(cuMemcpyDtoDAsync, kCallCopy),
    DRIVER(cuMemcpyHtoAAsync, kCallCopy),
    DRIVER(cuMemcpyAtoHAsync, kCallCopy),
    DRIVER(cuMemcpy2DAsync, kCallCopy),
    DRIVER(cuMemcpy3DAsync, kCallCopy),
    DRIVER(cuMemcpyHtoD_v2, kCallCopy),
    DRIVER(cuMemcpyHtoDAsync_v2, kCallCopy),
    DRIVER(cuMemcpyDtoH_v2, kCallCopy),
    DRIVER(cuMemcpyDtoHAsync_v2, kCallCopy),
    DRIVER(cuMemcpyDtoD_v2, kCallCopy),
    DRIVER(cuMemcpyDtoDAsync_v2, kCallCopy),
    DRIVER(cuMemcpyAtoH_v2, kCallCopy),
    DRIVER(cuMemcpyAtoHAsync_v2, kCallCopy),
    DRIVER(cuMemcpyAtoD_v2, kCallCopy),
    DRIVER(cuMemcpyDtoA_v2, kCallCopy),
    DRIVER(cuMemcpyAtoA_v2, kCallCopy),
    DRIVER(cuMemcpy2D_v2, kCallCopy),
    DRIVER(cuMemcpy2DUnaligned_v2, kCallCopy),
    DRIVER(cuMemcpy2DAsync_v2, kCallCopy),
    DRIVER(cuMemcpy3D_v2, kCallCopy),
    DRIVER(cuMemcpy3DAsync_v2, kCallCopy),
    DRIVER(cuMemcpyHtoA_v2, kCallCopy),
    DRIVER(cuMemcpyHtoAAsync_v2, kCallCopy),
    DRIVER(cuMemcpy, kCallCopy),
    DRIVER(cuMemcpyAsync, kCallCopy),
    DRIVER(cuMemcpyPeer, kCallCopy),
    DRIVER(cuMemcpyPeerAsync, kCallCopy),
    DRIVER(cuMemcpy3DPeer, kCallCopy),
    DRIVER(cuMemcpy3DPeerAsync, kCallCopy),
    DRIVER(cuMemcpyHtoD_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyDtoH_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyDtoD_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyDtoA_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyAtoD_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyHtoA_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyAtoH_v2_ptds, kCallCopy),
    DRIVER(cuMemcpyAtoA_v2_ptds, kCallCopy),
    DRIVER(cuMemcpy2D_v2_ptds, kCallCopy),
    DRIVER(cuMemcpy2DUnaligned_v2_ptds, kCallCopy),
    DRIVER(cuMemcpy3D_v2_ptds, kCallCopy),
    DRIVER(cuMemcpy_ptds, kCallCopy),
    DRIVER(cuMemcpyPeer_ptds, kCallCopy),
    DRIVER(cuMemcpy3DPeer_ptds, kCallCopy),
    DRIVER(cuMemcpyAsync_ptsz, kCallCopy),
    DRIVER(cuMemcpyHtoAAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpyAtoHAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpyHtoDAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpyDtoHAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpyDtoDAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpy2DAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpy3DAsync_v2_ptsz, kCallCopy),
    DRIVER(cuMemcpyPeerAsync_ptsz, kCallCopy),
    DRIVER(cuMemcpy3DPeerAsync_ptsz, kCallCopy),
    DRIVER(cuMemcpyBatchAsync, kCallCopy),
    DRIVER(cuMemcpyBatchAsync_ptsz, kCallCopy),
    DRIVER(cuMemcpy3DBatchAsync, kCallCopy),
    DRIVER(cuMemcpy3DBatchAsync_ptsz, kCallCopy),
    {796, "cuMemcpyBatchAsync_v2", kCallCopy},
    {797, "cuMemcpyBatchAsync_v2_ptsz", kCallCopy},
    {798, "cuMemcpy3DBatchAsync_v2", kCallCopy},
    {799, "cuMemcpy3DBatchAsync_v2_ptsz", kCallCopy},
    {837, "cuMemcpyWithAttributesAsync", kCallCopy},
    {838, "cuMemcpyWithAttributesAsync_ptsz", kCallCopy},
    {839, "cuMemcpy3DWithAttributesAsync", kCallCopy},
    {840, "cuMemcpy3DWithAttributesAsync_ptsz", kCallCopy},
    DRIVER(cuMemsetD8, kCallOther),
    DRIVER(cuMemsetD16, kCallOther),
    DRIVER(cuMemsetD32, kCallOther),
    DRIVER(cuMemsetD2D8, kCallOther),
    DRIVER(cuMemsetD2D16, kCallOther),
    DRIVER(cuMemsetD2D32, kCallOther),
    DRIVER(cuMemsetD8Async, kCallOther),
    DRIVER(cuMemsetD16Async, kCallOther),
    DRIVER(cuMemsetD32Async, kCallOther),
    DRIVER(cuMemsetD2D8Async, kCallOther),
    DRIVER(cuMemsetD2D16Async, kCallOther),
    DRIVER(cuMemsetD2D32Async, kCallOther),
    DRIVER(cuMemsetD8_v2, kCallOther),
    DRIVER(cuMemsetD16_v2, kCallOther),
    DRIVER(cuMemsetD32_v2, kCallOther),
    DRIVER(cuMemsetD2D8_v2, kCallOther),
    DRIVER(cuMemsetD2D16_v2, kCallOther),
    DRIVER(cuMemsetD2D32_v2, kCallOther),
    DRIVER(cuMemsetD8_v2_ptds, kCallOther),
    DRIVER(cuMemsetD16_v2_ptds, kCallOther),
    DRIVER(cuMemsetD32_v2_ptds, kCallOther),
    DRIVER(cuMemsetD2D8_v2_ptds, kCallOther),
    DRIVER(cuMemsetD2D16_v2_ptds, kCallOther),
    DRIVER(cuMemsetD2D32_v2_ptds, kCallOther),
    DRIVER(cuMemsetD8Async_ptsz, kCallOther),
    DRIVER(cuMemsetD16Async_ptsz, kCallOther),
    DRIVER(cuMemsetD32Async_ptsz, kCallOther),
    DRIVER(cuMemsetD2D8Async_ptsz, kCallOther),
    DRIVER(cuMemsetD2D16Async_ptsz, kCallOther),
    DRIVER(cuMemsetD2D32Async_ptsz, kCallOther),
    DRIVER(cuMemAlloc, kCallAlloc),
    DRIVER(cuMemAllocPitch, kCallAlloc),
    DRIVER(cuMemAlloc_v2, kCallAlloc),
    DRIVER(cuMemAllocPitch_v2, kCallAlloc),
    DRIVER(cuMemAllocManaged, kCallAlloc),
    DRIVER(cuMemCreate, kCallAlloc),
    DRIVER(cuMemAllocAsync, kCallAlloc),
    DRIVER(cuMemAllocAsync_ptsz, kCallAlloc),
    DRIVER(cuMemAllocFromPoolAsync, kCallAlloc),
    DRIVER(cuMemAllocFromPoolAsync_ptsz, kCallAlloc),
    DRIVER(cuMemFree, kCallFree),
    DRIVER(cuMemFree_v2, kCallFree),
    DRIVER(cuMemRelease, kCallFree),
    DRIVER(cuMemFreeAsync, kCallFree),
    DRIVER(cuMemFreeAsync_ptsz, kCallFree),
    DRIVER(cuMemAllocHost, kCallHostAlloc),
    DRIVER(cuMemFreeHost, kCallHostAlloc),
    DRIVER(cuMemHostAlloc, kCallHostAlloc),
    DRIVER(cuMemAllocHost_v2, kCallHostAlloc),
    DRIVER(cuMemHostRegister, kCallHostAlloc),
    DRIVER(cuMemHostUnregister, kCallHostAlloc),
    DRIVER(cuMemHostRegister_v2, kCallHostAlloc),
    DRIVER(cuModuleLoad, kCallModuleLoad),
    DRIVER(cuModuleLoadData, kCallModuleLoad),
    DRIVER(cuModuleLoadDataEx, kCallModuleLoad),
    DRIVER(cuModuleLoadFatBinary, kCallModuleLoad),
    DRIVER(cuLibraryLoadData, kCallModuleLoad),
    DRIVER(cuLibraryLoadFromFile, kCallModuleLoad),
    DRIVER(cuGraphInstantiate, kCallGraphInstantiate),
    DRIVER(cuGraphInstantiate_v2, kCallGraphInstantiate),
    DRIVER(cuGraphInstantiateWithFlags, kCallGraphInstantiate),
    DRIVER(cuGraphInstantiateWithParams, kCallGraphInstantiate),
    DRIVER(cuGraphInstantiateWithParams_ptsz, kCallGraphInstantiate),
    DRIVER(cuMemAddressReserve, kCallMap),
    DRIVER(cuMemAddressFree, kCallMap),
    DRIVER(cuMemMap, kCallMap),
    DRIVER(cuMemUnmap, kCallMap),
    DRIVER(cuMemSetAccess, kCallMap),
    DRIVER(cuMemMapArrayAsync, kCallMap),
    DRIVER(cuMemMapArrayAsync_ptsz, kCallMap),
};

#undef RUNTIME
#undef DRIVER

// A table from id to row, made once.
using Index = std::array<const CallRow*, kCallIds>;

Index index_of(std::span<const CallRow> rows) {
  Index index{};
  for (const CallRow& row : rows) {
    if (row.id < kCallIds) index[row.id] = &row;
  }
  return index;
}

bool drop_suffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

// "_v7000" and "_v2".
bool drop_version(std::string_view& name) {
  const std::size_t digits = name.find_last_not_of("0123456789");
  if (digits == std::string_view::npos || digits + 1 == name.size()) return false;
  if (digits < 1 || name[digits] != 'v' || name[digits - 1] != '_') return false;
  name.remove_suffix(name.size() - digits + 1);
  return true;
}

}  // namespace

std::span<const CallRow> runtime_calls() {
  return kRuntime;
}

std::span<const CallRow> driver_calls() {
  return kDriver;
}

const CallRow* find_call(CUpti_ActivityKind domain, std::uint32_t id) {
  static const Index runtime = index_of(kRuntime);
  static const Index driver = index_of(kDriver);
  if (id >= kCallIds) return nullptr;
  return domain == CUPTI_ACTIVITY_KIND_RUNTIME ? runtime[id] : driver[id];
}

std::string_view plain_name(std::string_view name) {
  while (name.starts_with('_')) name.remove_prefix(1);
  while (drop_version(name) || drop_suffix(name, "_ptsz") || drop_suffix(name, "_ptds")) {
  }
  return name;
}

}  // namespace ai_prof::cupti
