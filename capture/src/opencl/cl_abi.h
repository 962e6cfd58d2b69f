// The few OpenCL types, constants and dispatch slots that the layer needs, as the Khronos headers CL/cl.h,
// CL/cl_icd.h and CL/cl_layer.h define them. A test holds them to those headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

struct _cl_platform_id;
struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_program;
struct _cl_kernel;
struct _cl_event;

namespace ai_prof::opencl {

using cl_int = std::int32_t;
using cl_uint = std::uint32_t;
using cl_ulong = std::uint64_t;
using cl_bool = cl_uint;
using cl_bitfield = cl_ulong;
using cl_properties = cl_ulong;
using cl_context_properties = std::intptr_t;

using cl_device_id = ::_cl_device_id*;
using cl_context = ::_cl_context*;
using cl_command_queue = ::_cl_command_queue*;
using cl_mem = ::_cl_mem*;
using cl_program = ::_cl_program*;
using cl_kernel = ::_cl_kernel*;
using cl_event = ::_cl_event*;

using ContextNotify = void (*)(const char*, const void*, std::size_t, void*);
using ProgramNotify = void (*)(cl_program, void*);

inline constexpr cl_int kSuccess = 0;
inline constexpr cl_int kProfilingInfoNotAvailable = -7;
inline constexpr cl_int kInvalidValue = -30;
inline constexpr cl_int kComplete = 0;  // an execution status; negative ones are errors

inline constexpr cl_uint kLayerApiVersion = 0x4240;
inline constexpr cl_uint kLayerName = 0x4241;
inline constexpr cl_uint kLayerApiVersion100 = 100;

inline constexpr cl_uint kDeviceMaxComputeUnits = 0x1002;
inline constexpr cl_uint kDeviceGlobalMemSize = 0x101F;
inline constexpr cl_uint kDeviceName = 0x102B;
inline constexpr cl_uint kQueueProperties = 0x1093;
inline constexpr cl_uint kQueuePropertiesArray = 0x1098;
inline constexpr cl_bitfield kQueueProfilingEnable = 1u << 1;
inline constexpr cl_bitfield kQueueOnDevice = 1u << 2;
inline constexpr cl_uint kImageElementSize = 0x1111;
inline constexpr cl_uint kKernelFunctionName = 0x1190;
inline constexpr cl_uint kEventCommandQueue = 0x11D0;
inline constexpr cl_uint kEventCommandExecutionStatus = 0x11D3;
inline constexpr cl_uint kProfilingCommandQueued = 0x1280;
inline constexpr cl_uint kProfilingCommandStart = 0x1282;
inline constexpr cl_uint kProfilingCommandEnd = 0x1283;

// Positions in cl_icd_dispatch.
enum Slot : std::size_t {
  kGetDeviceInfo = 3,
  kCreateContext = 4,
  kCreateContextFromType = 5,
  kCreateCommandQueue = 9,
  kRetainCommandQueue = 10,
  kReleaseCommandQueue = 11,
  kGetCommandQueueInfo = 12,
  kCreateBuffer = 14,
  kReleaseMemObject = 18,
  kGetImageInfo = 21,
  kBuildProgram = 30,
  kReleaseKernel = 37,
  kGetKernelInfo = 39,
  kWaitForEvents = 41,
  kGetEventInfo = 42,
  kRetainEvent = 43,
  kReleaseEvent = 44,
  kGetEventProfilingInfo = 45,
  kFinish = 47,
  kEnqueueReadBuffer = 48,
  kEnqueueWriteBuffer = 49,
  kEnqueueCopyBuffer = 50,
  kEnqueueReadImage = 51,
  kEnqueueWriteImage = 52,
  kEnqueueCopyImage = 53,
  kEnqueueCopyImageToBuffer = 54,
  kEnqueueCopyBufferToImage = 55,
  kEnqueueMapBuffer = 56,
  kEnqueueMapImage = 57,
  kEnqueueUnmapMemObject = 58,
  kEnqueueNDRangeKernel = 59,
  kEnqueueTask = 60,
  kEnqueueReadBufferRect = 86,
  kEnqueueWriteBufferRect = 87,
  kEnqueueCopyBufferRect = 88,
  kRetainDevice = 94,
  kCompileProgram = 98,
  kLinkProgram = 99,
  kEnqueueFillBuffer = 102,
  kEnqueueFillImage = 103,
  kCreateCommandQueueWithProperties = 123,
  kSVMAlloc = 126,
  kSVMFree = 127,
  kEnqueueSVMMemcpy = 129,
  kEnqueueSVMMemFill = 130,
  kGetDeviceAndHostTimer = 140,
  kCreateBufferWithProperties = 146,
  kSlots = 147,
};

template <Slot slot>
struct Signature;

template <class Handle>
using GetInfo = cl_int (*)(Handle, cl_uint, std::size_t, void*, std::size_t*);
template <class Handle>
using Refer = cl_int (*)(Handle);
// Every enqueue ends in the events it waits for and the event it gives.
template <class... Args>
using Enqueue = cl_int (*)(cl_command_queue, Args..., cl_uint, const cl_event*, cl_event*);

using Sizes = const std::size_t*;

template <>
struct Signature<kGetDeviceInfo> {
  using type = GetInfo<cl_device_id>;
};
template <>
struct Signature<kCreateContext> {
  using type = cl_context (*)(const cl_context_properties*, cl_uint, const cl_device_id*, ContextNotify,
                              void*, cl_int*);
};
template <>
struct Signature<kCreateContextFromType> {
  using type = cl_context (*)(const cl_context_properties*, cl_bitfield, ContextNotify, void*, cl_int*);
};
template <>
struct Signature<kCreateCommandQueue> {
  using type = cl_command_queue (*)(cl_context, cl_device_id, cl_bitfield, cl_int*);
};
template <>
struct Signature<kCreateCommandQueueWithProperties> {
  using type = cl_command_queue (*)(cl_context, cl_device_id, const cl_properties*, cl_int*);
};
template <>
struct Signature<kRetainDevice> {
  using type = Refer<cl_device_id>;
};
template <>
struct Signature<kRetainCommandQueue> {
  using type = Refer<cl_command_queue>;
};
template <>
struct Signature<kReleaseCommandQueue> {
  using type = Refer<cl_command_queue>;
};
template <>
struct Signature<kGetCommandQueueInfo> {
  using type = GetInfo<cl_command_queue>;
};
template <>
struct Signature<kCreateBuffer> {
  using type = cl_mem (*)(cl_context, cl_bitfield, std::size_t, void*, cl_int*);
};
template <>
struct Signature<kCreateBufferWithProperties> {
  using type = cl_mem (*)(cl_context, const cl_properties*, cl_bitfield, std::size_t, void*, cl_int*);
};
template <>
struct Signature<kReleaseMemObject> {
  using type = Refer<cl_mem>;
};
template <>
struct Signature<kGetImageInfo> {
  using type = GetInfo<cl_mem>;
};
template <>
struct Signature<kBuildProgram> {
  using type = cl_int (*)(cl_program, cl_uint, const cl_device_id*, const char*, ProgramNotify, void*);
};
template <>
struct Signature<kCompileProgram> {
  using type = cl_int (*)(cl_program, cl_uint, const cl_device_id*, const char*, cl_uint, const cl_program*,
                          const char**, ProgramNotify, void*);
};
template <>
struct Signature<kLinkProgram> {
  using type = cl_program (*)(cl_context, cl_uint, const cl_device_id*, const char*, cl_uint,
                              const cl_program*, ProgramNotify, void*, cl_int*);
};
template <>
struct Signature<kReleaseKernel> {
  using type = Refer<cl_kernel>;
};
template <>
struct Signature<kGetKernelInfo> {
  using type = GetInfo<cl_kernel>;
};
template <>
struct Signature<kWaitForEvents> {
  using type = cl_int (*)(cl_uint, const cl_event*);
};
template <>
struct Signature<kGetEventInfo> {
  using type = GetInfo<cl_event>;
};
template <>
struct Signature<kRetainEvent> {
  using type = Refer<cl_event>;
};
template <>
struct Signature<kReleaseEvent> {
  using type = Refer<cl_event>;
};
template <>
struct Signature<kGetEventProfilingInfo> {
  using type = GetInfo<cl_event>;
};
template <>
struct Signature<kFinish> {
  using type = Refer<cl_command_queue>;
};
template <>
struct Signature<kEnqueueReadBuffer> {
  using type = Enqueue<cl_mem, cl_bool, std::size_t, std::size_t, void*>;
};
template <>
struct Signature<kEnqueueWriteBuffer> {
  using type = Enqueue<cl_mem, cl_bool, std::size_t, std::size_t, const void*>;
};
template <>
struct Signature<kEnqueueCopyBuffer> {
  using type = Enqueue<cl_mem, cl_mem, std::size_t, std::size_t, std::size_t>;
};
template <>
struct Signature<kEnqueueReadBufferRect> {
  using type = Enqueue<cl_mem, cl_bool, Sizes, Sizes, Sizes, std::size_t, std::size_t, std::size_t,
                       std::size_t, void*>;
};
template <>
struct Signature<kEnqueueWriteBufferRect> {
  using type = Enqueue<cl_mem, cl_bool, Sizes, Sizes, Sizes, std::size_t, std::size_t, std::size_t,
                       std::size_t, const void*>;
};
template <>
struct Signature<kEnqueueCopyBufferRect> {
  using type =
      Enqueue<cl_mem, cl_mem, Sizes, Sizes, Sizes, std::size_t, std::size_t, std::size_t, std::size_t>;
};
template <>
struct Signature<kEnqueueFillBuffer> {
  using type = Enqueue<cl_mem, const void*, std::size_t, std::size_t, std::size_t>;
};
template <>
struct Signature<kEnqueueReadImage> {
  using type = Enqueue<cl_mem, cl_bool, Sizes, Sizes, std::size_t, std::size_t, void*>;
};
template <>
struct Signature<kEnqueueWriteImage> {
  using type = Enqueue<cl_mem, cl_bool, Sizes, Sizes, std::size_t, std::size_t, const void*>;
};
template <>
struct Signature<kEnqueueCopyImage> {
  using type = Enqueue<cl_mem, cl_mem, Sizes, Sizes, Sizes>;
};
template <>
struct Signature<kEnqueueCopyImageToBuffer> {
  using type = Enqueue<cl_mem, cl_mem, Sizes, Sizes, std::size_t>;
};
template <>
struct Signature<kEnqueueCopyBufferToImage> {
  using type = Enqueue<cl_mem, cl_mem, std::size_t, Sizes, Sizes>;
};
template <>
struct Signature<kEnqueueFillImage> {
  using type = Enqueue<cl_mem, const void*, Sizes, Sizes>;
};
template <>
struct Signature<kEnqueueMapBuffer> {
  using type = void* (*)(cl_command_queue, cl_mem, cl_bool, cl_bitfield, std::size_t, std::size_t, cl_uint,
                         const cl_event*, cl_event*, cl_int*);
};
template <>
struct Signature<kEnqueueMapImage> {
  using type = void* (*)(cl_command_queue, cl_mem, cl_bool, cl_bitfield, Sizes, Sizes, std::size_t*,
                         std::size_t*, cl_uint, const cl_event*, cl_event*, cl_int*);
};
template <>
struct Signature<kEnqueueUnmapMemObject> {
  using type = Enqueue<cl_mem, void*>;
};
template <>
struct Signature<kEnqueueNDRangeKernel> {
  using type = Enqueue<cl_kernel, cl_uint, Sizes, Sizes, Sizes>;
};
template <>
struct Signature<kEnqueueTask> {
  using type = Enqueue<cl_kernel>;
};
template <>
struct Signature<kSVMAlloc> {
  using type = void* (*)(cl_context, cl_bitfield, std::size_t, cl_uint);
};
template <>
struct Signature<kSVMFree> {
  using type = void (*)(cl_context, void*);
};
template <>
struct Signature<kEnqueueSVMMemcpy> {
  using type = cl_int (*)(cl_command_queue, cl_bool, void*, const void*, std::size_t, cl_uint,
                          const cl_event*, cl_event*);
};
template <>
struct Signature<kEnqueueSVMMemFill> {
  using type = Enqueue<void*, const void*, std::size_t, std::size_t>;
};
template <>
struct Signature<kGetDeviceAndHostTimer> {
  using type = cl_int (*)(cl_device_id, cl_ulong*, cl_ulong*);
};

}  // namespace ai_prof::opencl
