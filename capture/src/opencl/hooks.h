// The layer's functions, put over the driver's.
#pragma once

#include <array>

#include "opencl/cl_abi.h"

namespace ai_prof::opencl {

// Each overwrites its own slots.
void put_object_hooks(std::array<void*, kSlots>& table);   // contexts, queues, kernels, memory, programs
void put_command_hooks(std::array<void*, kSlots>& table);  // kernels, buffers, images, shared memory
void put_wait_hooks(std::array<void*, kSlots>& table);     // clFinish, clWaitForEvents

}  // namespace ai_prof::opencl
