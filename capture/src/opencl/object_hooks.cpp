// Contexts, queues, kernels, memory and programs.
#include <exception>

#include "core/say.h"
#include "opencl/hooks.h"
#include "opencl/recording.h"

namespace ai_prof::opencl {
namespace {

// Runs what may throw; a capture may fail, the program under it may not.
template <class Work>
void guarded(Work&& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    if (Capture* capture = Capture::known()) capture->problem(error.what());
  }
}

cl_context noted(cl_context context) noexcept {
  if (context == nullptr) return context;
  Capture::start_once();
  if (Capture* capture = Capture::known()) guarded([&] { capture->add_context(context); });
  return context;
}

cl_context create_context(const cl_context_properties* properties, cl_uint count, const cl_device_id* devices,
                          ContextNotify notify, void* data, cl_int* error) noexcept {
  return noted(next<kCreateContext>()(properties, count, devices, notify, data, error));
}

cl_context create_context_from_type(const cl_context_properties* properties, cl_bitfield type,
                                    ContextNotify notify, void* data, cl_int* error) noexcept {
  return noted(next<kCreateContextFromType>()(properties, type, notify, data, error));
}

void note_queue(cl_command_queue queue, cl_context context, cl_device_id device, QueueView view) noexcept {
  if (Capture* capture = Capture::known()) {
    guarded([&] { capture->add_queue(queue, context, device, std::move(view)); });
  }
}

void note_unprofiled() noexcept {
  if (Capture* capture = Capture::known()) {
    capture->problem("the driver refused profiling for a command queue: its work is not recorded");
  }
}

cl_command_queue create_queue(cl_context context, cl_device_id device, cl_bitfield wanted,
                              cl_int* error) noexcept {
  const auto create = next<kCreateCommandQueue>();
  if (Capture::known() == nullptr) return create(context, device, wanted, error);
  if (cl_command_queue queue = create(context, device, wanted | kQueueProfilingEnable, error)) {
    note_queue(queue, context, device, {(wanted & kQueueProfilingEnable) != 0, {}});
    return queue;
  }
  cl_command_queue queue = create(context, device, wanted, error);
  if (queue != nullptr) note_unprofiled();
  return queue;
}

// The program's list with its closing 0, and its flags.
std::vector<cl_properties> copy_properties(const cl_properties* list, cl_bitfield& flags) {
  std::vector<cl_properties> copy;
  if (list == nullptr) return copy;
  for (; *list != 0; list += 2) {
    copy.insert(copy.end(), {list[0], list[1]});
    if (list[0] == kQueueProperties) flags = list[1];
  }
  copy.push_back(0);
  return copy;
}

std::vector<cl_properties> with_profiling(const std::vector<cl_properties>& list, cl_bitfield flags) {
  std::vector<cl_properties> profiled = {kQueueProperties, flags | kQueueProfilingEnable};
  for (std::size_t i = 0; i + 1 < list.size(); i += 2) {
    if (list[i] != kQueueProperties) profiled.insert(profiled.end(), {list[i], list[i + 1]});
  }
  profiled.push_back(0);
  return profiled;
}

cl_command_queue create_queue_with_properties(cl_context context, cl_device_id device,
                                              const cl_properties* wanted, cl_int* error) noexcept {
  const auto create = next<kCreateCommandQueueWithProperties>();
  if (Capture::known() == nullptr) return create(context, device, wanted, error);
  cl_command_queue queue = nullptr;
  bool on_device = false;
  guarded([&] {
    cl_bitfield flags = 0;
    std::vector<cl_properties> own = copy_properties(wanted, flags);
    on_device = (flags & kQueueOnDevice) != 0;  // the host enqueues nothing there
    if (on_device) return;
    queue = create(context, device, with_profiling(own, flags).data(), error);
    if (queue == nullptr) return;
    note_queue(queue, context, device, {(flags & kQueueProfilingEnable) != 0, std::move(own)});
  });
  if (queue != nullptr) return queue;
  queue = create(context, device, wanted, error);
  if (queue != nullptr && !on_device) note_unprofiled();
  return queue;
}

cl_int retain_queue(cl_command_queue queue) noexcept {
  const cl_int result = next<kRetainCommandQueue>()(queue);
  if (Capture* capture = Capture::known(); capture != nullptr && result == kSuccess) capture->retained(queue);
  return result;
}

cl_int release_queue(cl_command_queue queue) noexcept {
  // Before the call: afterwards the handle may already be another queue's.
  if (Capture* capture = Capture::known()) capture->released(queue);
  return next<kReleaseCommandQueue>()(queue);
}

// Answers as if profiling were as the program asked for.
cl_int get_queue_info(cl_command_queue handle, cl_uint what, std::size_t size, void* value,
                      std::size_t* size_needed) noexcept {
  const cl_int result = next<kGetCommandQueueInfo>()(handle, what, size, value, size_needed);
  const Capture* const capture = Capture::known();
  const Queue* const queue = capture != nullptr ? capture->find(handle) : nullptr;
  if (queue == nullptr || queue->view.profiled_by_program) return result;
  if (what == kQueueProperties && result == kSuccess && value != nullptr) {
    *static_cast<cl_bitfield*>(value) &= ~kQueueProfilingEnable;
  }
  if (what != kQueuePropertiesArray) return result;
  const std::vector<cl_properties>& own = queue->view.properties;
  const std::size_t needed = own.size() * sizeof(cl_properties);
  if (value != nullptr && size < needed) return kInvalidValue;
  if (value != nullptr) std::copy(own.begin(), own.end(), static_cast<cl_properties*>(value));
  if (size_needed != nullptr) *size_needed = needed;
  return kSuccess;
}

cl_int get_event_profiling_info(cl_event event, cl_uint what, std::size_t size, void* value,
                                std::size_t* size_needed) noexcept {
  if (const Capture* capture = Capture::known()) {
    const auto handle = info<kGetEventInfo, cl_command_queue>(event, kEventCommandQueue, nullptr);
    const Queue* queue = handle != nullptr ? capture->find(handle) : nullptr;
    if (queue != nullptr && !queue->view.profiled_by_program) return kProfilingInfoNotAvailable;
  }
  return next<kGetEventProfilingInfo>()(event, what, size, value, size_needed);
}

cl_int release_kernel(cl_kernel kernel) noexcept {
  if (Capture* capture = Capture::current()) capture->released(kernel);
  return next<kReleaseKernel>()(kernel);
}

// Calls whose error comes through a pointer that may be null.
template <class Create>
auto record_create(Call which, cl_int* error, Create&& create) noexcept {
  return record_call(which, [&](cl_int& result) {
    const auto made = create(&result);
    if (error != nullptr) *error = result;
    return made;
  });
}

cl_mem create_buffer(cl_context context, cl_bitfield flags, std::size_t size, void* host,
                     cl_int* error) noexcept {
  return record_create(Call::kCreateBuffer, error, [&](cl_int* result) {
    return next<kCreateBuffer>()(context, flags, size, host, result);
  });
}

cl_mem create_buffer_with_properties(cl_context context, const cl_properties* properties, cl_bitfield flags,
                                     std::size_t size, void* host, cl_int* error) noexcept {
  return record_create(Call::kCreateBuffer, error, [&](cl_int* result) {
    return next<kCreateBufferWithProperties>()(context, properties, flags, size, host, result);
  });
}

cl_int release_mem_object(cl_mem memory) noexcept {
  return record_call(Call::kReleaseMemObject,
                     [&](cl_int& result) { return result = next<kReleaseMemObject>()(memory); });
}

void* svm_alloc(cl_context context, cl_bitfield flags, std::size_t size, cl_uint alignment) noexcept {
  return record_call(Call::kSVMAlloc,
                     [&](cl_int&) { return next<kSVMAlloc>()(context, flags, size, alignment); });
}

void svm_free(cl_context context, void* memory) noexcept {
  record_call(Call::kSVMFree, [&](cl_int& result) {
    next<kSVMFree>()(context, memory);
    return result;
  });
}

cl_int build_program(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                     ProgramNotify notify, void* data) noexcept {
  return record_call(Call::kBuildProgram, [&](cl_int& result) {
    return result = next<kBuildProgram>()(program, count, devices, options, notify, data);
  });
}

cl_int compile_program(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                       cl_uint headers, const cl_program* header_programs, const char** header_names,
                       ProgramNotify notify, void* data) noexcept {
  return record_call(Call::kCompileProgram, [&](cl_int& result) {
    return result = next<kCompileProgram>()(program, count, devices, options, headers, header_programs,
                                            header_names, notify, data);
  });
}

cl_program link_program(cl_context context, cl_uint count, const cl_device_id* devices, const char* options,
                        cl_uint inputs, const cl_program* input_programs, ProgramNotify notify, void* data,
                        cl_int* error) noexcept {
  return record_create(Call::kLinkProgram, error, [&](cl_int* result) {
    return next<kLinkProgram>()(context, count, devices, options, inputs, input_programs, notify, data,
                                result);
  });
}

}  // namespace

void put_object_hooks(std::array<void*, kSlots>& table) {
  put<kCreateContext>(table, create_context);
  put<kCreateContextFromType>(table, create_context_from_type);
  put<kCreateCommandQueue>(table, create_queue);
  put<kCreateCommandQueueWithProperties>(table, create_queue_with_properties);
  put<kRetainCommandQueue>(table, retain_queue);
  put<kReleaseCommandQueue>(table, release_queue);
  put<kGetCommandQueueInfo>(table, get_queue_info);
  put<kGetEventProfilingInfo>(table, get_event_profiling_info);
  put<kReleaseKernel>(table, release_kernel);
  put<kCreateBuffer>(table, create_buffer);
  put<kCreateBufferWithProperties>(table, create_buffer_with_properties);
  put<kReleaseMemObject>(table, release_mem_object);
  put<kSVMAlloc>(table, svm_alloc);
  put<kSVMFree>(table, svm_free);
  put<kBuildProgram>(table, build_program);
  put<kCompileProgram>(table, compile_program);
  put<kLinkProgram>(table, link_program);
}

}  // namespace ai_prof::opencl
