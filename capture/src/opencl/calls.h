// The host calls that the layer tells of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "ai_prof/format.h"

namespace ai_prof::opencl {

enum class Call : std::uint8_t {
  kNDRangeKernel,
  kTask,
  kReadBuffer,
  kWriteBuffer,
  kCopyBuffer,
  kReadBufferRect,
  kWriteBufferRect,
  kCopyBufferRect,
  kFillBuffer,
  kMapBuffer,
  kUnmapMemObject,
  kReadImage,
  kWriteImage,
  kCopyImage,
  kCopyImageToBuffer,
  kCopyBufferToImage,
  kFillImage,
  kMapImage,
  kSVMMemcpy,
  kSVMMemFill,
  kFinish,
  kWaitForEvents,
  kCreateBuffer,
  kReleaseMemObject,
  kSVMAlloc,
  kSVMFree,
  kBuildProgram,
  kCompileProgram,
  kLinkProgram,
};

struct CallInfo {
  std::string_view name;
  format::CallKind kind;
};

// By Call.
inline constexpr CallInfo kCalls[] = {
    {"clEnqueueNDRangeKernel", format::kCallLaunch},
    {"clEnqueueTask", format::kCallLaunch},
    {"clEnqueueReadBuffer", format::kCallCopy},
    {"clEnqueueWriteBuffer", format::kCallCopy},
    {"clEnqueueCopyBuffer", format::kCallCopy},
    {"clEnqueueReadBufferRect", format::kCallCopy},
    {"clEnqueueWriteBufferRect", format::kCallCopy},
    {"clEnqueueCopyBufferRect", format::kCallCopy},
    {"clEnqueueFillBuffer", format::kCallCopy},
    {"clEnqueueMapBuffer", format::kCallCopy},
    {"clEnqueueUnmapMemObject", format::kCallCopy},
    {"clEnqueueReadImage", format::kCallCopy},
    {"clEnqueueWriteImage", format::kCallCopy},
    {"clEnqueueCopyImage", format::kCallCopy},
    {"clEnqueueCopyImageToBuffer", format::kCallCopy},
    {"clEnqueueCopyBufferToImage", format::kCallCopy},
    {"clEnqueueFillImage", format::kCallCopy},
    {"clEnqueueMapImage", format::kCallCopy},
    {"clEnqueueSVMMemcpy", format::kCallCopy},
    {"clEnqueueSVMMemFill", format::kCallCopy},
    {"clFinish", format::kCallSync},
    {"clWaitForEvents", format::kCallSync},
    {"clCreateBuffer", format::kCallAlloc},
    {"clReleaseMemObject", format::kCallFree},
    {"clSVMAlloc", format::kCallAlloc},
    {"clSVMFree", format::kCallFree},
    {"clBuildProgram", format::kCallModuleLoad},
    {"clCompileProgram", format::kCallModuleLoad},
    {"clLinkProgram", format::kCallModuleLoad},
};

inline constexpr std::size_t kCallCount = std::size(kCalls);
static_assert(kCallCount == static_cast<std::size_t>(Call::kLinkProgram) + 1);

}  // namespace ai_prof::opencl
