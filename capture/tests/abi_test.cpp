// Holds opencl/cl_abi.h to the Khronos headers: compiles, or does not.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_icd.h>
#include <CL/cl_layer.h>

#include <cstddef>
#include <type_traits>

#include "opencl/cl_abi.h"

namespace {

namespace ours = ai_prof::opencl;

// NOLINTNEXTLINE: only a macro can name a slot of both
#define SAME(function)                                                                         \
  static_assert(offsetof(cl_icd_dispatch, cl##function) == ours::k##function * sizeof(void*)); \
  static_assert(std::is_same_v<ours::Signature<ours::k##function>::type, cl_api_cl##function>);

SAME(GetDeviceInfo)
SAME(CreateContext)
SAME(CreateContextFromType)
SAME(CreateCommandQueue)
SAME(RetainCommandQueue)
SAME(ReleaseCommandQueue)
SAME(GetCommandQueueInfo)
SAME(CreateBuffer)
SAME(ReleaseMemObject)
SAME(GetImageInfo)
SAME(BuildProgram)
SAME(ReleaseKernel)
SAME(GetKernelInfo)
SAME(WaitForEvents)
SAME(GetEventInfo)
SAME(RetainEvent)
SAME(ReleaseEvent)
SAME(GetEventProfilingInfo)
SAME(Finish)
SAME(EnqueueReadBuffer)
SAME(EnqueueWriteBuffer)
SAME(EnqueueCopyBuffer)
SAME(EnqueueReadImage)
SAME(EnqueueWriteImage)
SAME(EnqueueCopyImage)
SAME(EnqueueCopyImageToBuffer)
SAME(EnqueueCopyBufferToImage)
SAME(EnqueueMapBuffer)
SAME(EnqueueMapImage)
SAME(EnqueueUnmapMemObject)
SAME(EnqueueNDRangeKernel)
SAME(EnqueueTask)
SAME(EnqueueReadBufferRect)
SAME(EnqueueWriteBufferRect)
SAME(EnqueueCopyBufferRect)
SAME(RetainDevice)
SAME(CompileProgram)
SAME(LinkProgram)
SAME(EnqueueFillBuffer)
SAME(EnqueueFillImage)
SAME(CreateCommandQueueWithProperties)
SAME(SVMAlloc)
SAME(SVMFree)
SAME(EnqueueSVMMemcpy)
SAME(EnqueueSVMMemFill)
SAME(GetDeviceAndHostTimer)
SAME(CreateBufferWithProperties)

static_assert(ours::kProfilingInfoNotAvailable == CL_PROFILING_INFO_NOT_AVAILABLE);
static_assert(ours::kInvalidValue == CL_INVALID_VALUE);
static_assert(ours::kComplete == CL_COMPLETE);
static_assert(ours::kLayerApiVersion == CL_LAYER_API_VERSION);
static_assert(ours::kLayerName == CL_LAYER_NAME);
static_assert(ours::kLayerApiVersion100 == CL_LAYER_API_VERSION_100);
static_assert(ours::kDeviceMaxComputeUnits == CL_DEVICE_MAX_COMPUTE_UNITS);
static_assert(ours::kDeviceGlobalMemSize == CL_DEVICE_GLOBAL_MEM_SIZE);
static_assert(ours::kDeviceName == CL_DEVICE_NAME);
static_assert(ours::kQueueProperties == CL_QUEUE_PROPERTIES);
static_assert(ours::kQueuePropertiesArray == CL_QUEUE_PROPERTIES_ARRAY);
static_assert(ours::kQueueProfilingEnable == CL_QUEUE_PROFILING_ENABLE);
static_assert(ours::kQueueOnDevice == CL_QUEUE_ON_DEVICE);
static_assert(ours::kImageElementSize == CL_IMAGE_ELEMENT_SIZE);
static_assert(ours::kKernelFunctionName == CL_KERNEL_FUNCTION_NAME);
static_assert(ours::kEventCommandQueue == CL_EVENT_COMMAND_QUEUE);
static_assert(ours::kEventCommandExecutionStatus == CL_EVENT_COMMAND_EXECUTION_STATUS);
static_assert(ours::kProfilingCommandQueued == CL_PROFILING_COMMAND_QUEUED);
static_assert(ours::kProfilingCommandStart == CL_PROFILING_COMMAND_START);
static_assert(ours::kProfilingCommandEnd == CL_PROFILING_COMMAND_END);

}  // namespace

int main() {
  return 0;
}
