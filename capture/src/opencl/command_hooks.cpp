// Commands that the device does: kernels and copies.
#include <algorithm>
#include <limits>

#include "opencl/hooks.h"
#include "opencl/recording.h"

namespace ai_prof::opencl {
namespace {

std::uint32_t narrow(std::size_t value) noexcept {
  return static_cast<std::uint32_t>(std::min<std::size_t>(value, std::numeric_limits<std::uint32_t>::max()));
}

Item copy(Call call, format::CopyKind kind, std::uint64_t bytes, cl_bool blocking = 0) noexcept {
  Item item;
  item.what = Item::What::kMemory;
  item.call = call;
  item.copy_kind = static_cast<std::uint8_t>(kind);
  item.bytes = bytes;
  item.blocking = blocking != 0;
  return item;
}

std::uint64_t volume(Sizes region) noexcept {
  return region != nullptr ? std::uint64_t{region[0]} * region[1] * region[2] : 0;
}

std::uint64_t image_bytes(cl_mem image, Sizes region) noexcept {
  if (Capture::current() == nullptr || g_next[kGetImageInfo] == nullptr) return 0;
  return volume(region) * info<kGetImageInfo, std::size_t>(image, kImageElementSize, 0);
}

// The work-groups as the grid and the group's size as the block. Where the driver chooses the groups, every
// work-item counts as its own.
Item launch(Call call, cl_kernel kernel, cl_uint dimensions, Sizes global, Sizes local) noexcept {
  Item item;
  item.what = Item::What::kKernel;
  item.call = call;
  if (Capture* capture = Capture::current()) item.name = capture->kernel_name(kernel);
  // A call that asks for more than three is refused, and how long its lists are is not known.
  for (std::size_t i = 0; dimensions <= 3 && i < dimensions && global != nullptr; ++i) {
    const std::size_t group = local != nullptr && local[i] > 0 ? local[i] : 1;
    item.block[i] = narrow(group);
    item.grid[i] = narrow(global[i] / group + (global[i] % group != 0 ? 1 : 0));
  }
  return item;
}

cl_int nd_range_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, Sizes offset,
                       Sizes global, Sizes local, cl_uint waits, const cl_event* wait_list,
                       cl_event* event) noexcept {
  return record_command(queue, event, launch(Call::kNDRangeKernel, kernel, dimensions, global, local),
                        [&](cl_event* out) {
                          return next<kEnqueueNDRangeKernel>()(queue, kernel, dimensions, offset, global,
                                                               local, waits, wait_list, out);
                        });
}

cl_int task(cl_command_queue queue, cl_kernel kernel, cl_uint waits, const cl_event* wait_list,
            cl_event* event) noexcept {
  return record_command(queue, event, launch(Call::kTask, kernel, 0, nullptr, nullptr), [&](cl_event* out) {
    return next<kEnqueueTask>()(queue, kernel, waits, wait_list, out);
  });
}

cl_int read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, std::size_t offset,
                   std::size_t size, void* to, cl_uint waits, const cl_event* wait_list,
                   cl_event* event) noexcept {
  return record_command(
      queue, event, copy(Call::kReadBuffer, format::kDeviceToHost, size, blocking), [&](cl_event* out) {
        return next<kEnqueueReadBuffer>()(queue, buffer, blocking, offset, size, to, waits, wait_list, out);
      });
}

cl_int write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, std::size_t offset,
                    std::size_t size, const void* from, cl_uint waits, const cl_event* wait_list,
                    cl_event* event) noexcept {
  return record_command(queue, event, copy(Call::kWriteBuffer, format::kHostToDevice, size, blocking),
                        [&](cl_event* out) {
                          return next<kEnqueueWriteBuffer>()(queue, buffer, blocking, offset, size, from,
                                                             waits, wait_list, out);
                        });
}

cl_int copy_buffer(cl_command_queue queue, cl_mem from, cl_mem to, std::size_t from_offset,
                   std::size_t to_offset, std::size_t size, cl_uint waits, const cl_event* wait_list,
                   cl_event* event) noexcept {
  return record_command(queue, event, copy(Call::kCopyBuffer, format::kDeviceToDevice, size),
                        [&](cl_event* out) {
                          return next<kEnqueueCopyBuffer>()(queue, from, to, from_offset, to_offset, size,
                                                            waits, wait_list, out);
                        });
}

cl_int read_buffer_rect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, Sizes origin,
                        Sizes host_origin, Sizes region, std::size_t row, std::size_t slice,
                        std::size_t host_row, std::size_t host_slice, void* to, cl_uint waits,
                        const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(
      queue, event, copy(Call::kReadBufferRect, format::kDeviceToHost, volume(region), blocking),
      [&](cl_event* out) {
        return next<kEnqueueReadBufferRect>()(queue, buffer, blocking, origin, host_origin, region, row,
                                              slice, host_row, host_slice, to, waits, wait_list, out);
      });
}

cl_int write_buffer_rect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, Sizes origin,
                         Sizes host_origin, Sizes region, std::size_t row, std::size_t slice,
                         std::size_t host_row, std::size_t host_slice, const void* from, cl_uint waits,
                         const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(
      queue, event, copy(Call::kWriteBufferRect, format::kHostToDevice, volume(region), blocking),
      [&](cl_event* out) {
        return next<kEnqueueWriteBufferRect>()(queue, buffer, blocking, origin, host_origin, region, row,
                                               slice, host_row, host_slice, from, waits, wait_list, out);
      });
}

cl_int copy_buffer_rect(cl_command_queue queue, cl_mem from, cl_mem to, Sizes from_origin, Sizes to_origin,
                        Sizes region, std::size_t from_row, std::size_t from_slice, std::size_t to_row,
                        std::size_t to_slice, cl_uint waits, const cl_event* wait_list,
                        cl_event* event) noexcept {
  return record_command(
      queue, event, copy(Call::kCopyBufferRect, format::kDeviceToDevice, volume(region)), [&](cl_event* out) {
        return next<kEnqueueCopyBufferRect>()(queue, from, to, from_origin, to_origin, region, from_row,
                                              from_slice, to_row, to_slice, waits, wait_list, out);
      });
}

cl_int fill_buffer(cl_command_queue queue, cl_mem buffer, const void* pattern, std::size_t pattern_size,
                   std::size_t offset, std::size_t size, cl_uint waits, const cl_event* wait_list,
                   cl_event* event) noexcept {
  return record_command(queue, event, copy(Call::kFillBuffer, format::kSet, size), [&](cl_event* out) {
    return next<kEnqueueFillBuffer>()(queue, buffer, pattern, pattern_size, offset, size, waits, wait_list,
                                      out);
  });
}

// A map may move the bytes to the host, an unmap back; how many an unmap moves is not known here.
void* map_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_bitfield flags,
                 std::size_t offset, std::size_t size, cl_uint waits, const cl_event* wait_list,
                 cl_event* event, cl_int* error) noexcept {
  void* mapped = nullptr;
  const cl_int result = record_command(
      queue, event, copy(Call::kMapBuffer, format::kDeviceToHost, size, blocking), [&](cl_event* out) {
        cl_int code = kSuccess;
        mapped = next<kEnqueueMapBuffer>()(queue, buffer, blocking, flags, offset, size, waits, wait_list,
                                           out, &code);
        return code;
      });
  if (error != nullptr) *error = result;
  return mapped;
}

void* map_image(cl_command_queue queue, cl_mem image, cl_bool blocking, cl_bitfield flags, Sizes origin,
                Sizes region, std::size_t* row, std::size_t* slice, cl_uint waits, const cl_event* wait_list,
                cl_event* event, cl_int* error) noexcept {
  void* mapped = nullptr;
  const cl_int result = record_command(
      queue, event, copy(Call::kMapImage, format::kDeviceToHost, image_bytes(image, region), blocking),
      [&](cl_event* out) {
        cl_int code = kSuccess;
        mapped = next<kEnqueueMapImage>()(queue, image, blocking, flags, origin, region, row, slice, waits,
                                          wait_list, out, &code);
        return code;
      });
  if (error != nullptr) *error = result;
  return mapped;
}

cl_int unmap(cl_command_queue queue, cl_mem memory, void* mapped, cl_uint waits, const cl_event* wait_list,
             cl_event* event) noexcept {
  return record_command(queue, event, copy(Call::kUnmapMemObject, format::kCopyUnknown, 0),
                        [&](cl_event* out) {
                          return next<kEnqueueUnmapMemObject>()(queue, memory, mapped, waits, wait_list, out);
                        });
}

cl_int read_image(cl_command_queue queue, cl_mem image, cl_bool blocking, Sizes origin, Sizes region,
                  std::size_t row, std::size_t slice, void* to, cl_uint waits, const cl_event* wait_list,
                  cl_event* event) noexcept {
  return record_command(queue, event,
                        copy(Call::kReadImage, format::kDeviceToHost, image_bytes(image, region), blocking),
                        [&](cl_event* out) {
                          return next<kEnqueueReadImage>()(queue, image, blocking, origin, region, row, slice,
                                                           to, waits, wait_list, out);
                        });
}

cl_int write_image(cl_command_queue queue, cl_mem image, cl_bool blocking, Sizes origin, Sizes region,
                   std::size_t row, std::size_t slice, const void* from, cl_uint waits,
                   const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(queue, event,
                        copy(Call::kWriteImage, format::kHostToDevice, image_bytes(image, region), blocking),
                        [&](cl_event* out) {
                          return next<kEnqueueWriteImage>()(queue, image, blocking, origin, region, row,
                                                            slice, from, waits, wait_list, out);
                        });
}

cl_int copy_image(cl_command_queue queue, cl_mem from, cl_mem to, Sizes from_origin, Sizes to_origin,
                  Sizes region, cl_uint waits, const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(queue, event,
                        copy(Call::kCopyImage, format::kDeviceToDevice, image_bytes(from, region)),
                        [&](cl_event* out) {
                          return next<kEnqueueCopyImage>()(queue, from, to, from_origin, to_origin, region,
                                                           waits, wait_list, out);
                        });
}

cl_int copy_image_to_buffer(cl_command_queue queue, cl_mem from, cl_mem to, Sizes origin, Sizes region,
                            std::size_t offset, cl_uint waits, const cl_event* wait_list,
                            cl_event* event) noexcept {
  return record_command(queue, event,
                        copy(Call::kCopyImageToBuffer, format::kDeviceToDevice, image_bytes(from, region)),
                        [&](cl_event* out) {
                          return next<kEnqueueCopyImageToBuffer>()(queue, from, to, origin, region, offset,
                                                                   waits, wait_list, out);
                        });
}

cl_int copy_buffer_to_image(cl_command_queue queue, cl_mem from, cl_mem to, std::size_t offset, Sizes origin,
                            Sizes region, cl_uint waits, const cl_event* wait_list,
                            cl_event* event) noexcept {
  return record_command(queue, event,
                        copy(Call::kCopyBufferToImage, format::kDeviceToDevice, image_bytes(to, region)),
                        [&](cl_event* out) {
                          return next<kEnqueueCopyBufferToImage>()(queue, from, to, offset, origin, region,
                                                                   waits, wait_list, out);
                        });
}

cl_int fill_image(cl_command_queue queue, cl_mem image, const void* color, Sizes origin, Sizes region,
                  cl_uint waits, const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(
      queue, event, copy(Call::kFillImage, format::kSet, image_bytes(image, region)), [&](cl_event* out) {
        return next<kEnqueueFillImage>()(queue, image, color, origin, region, waits, wait_list, out);
      });
}

cl_int svm_memcpy(cl_command_queue queue, cl_bool blocking, void* to, const void* from, std::size_t size,
                  cl_uint waits, const cl_event* wait_list, cl_event* event) noexcept {
  // Which side either pointer is on can't be told from it.
  return record_command(
      queue, event, copy(Call::kSVMMemcpy, format::kCopyUnknown, size, blocking), [&](cl_event* out) {
        return next<kEnqueueSVMMemcpy>()(queue, blocking, to, from, size, waits, wait_list, out);
      });
}

cl_int svm_fill(cl_command_queue queue, void* to, const void* pattern, std::size_t pattern_size,
                std::size_t size, cl_uint waits, const cl_event* wait_list, cl_event* event) noexcept {
  return record_command(queue, event, copy(Call::kSVMMemFill, format::kSet, size), [&](cl_event* out) {
    return next<kEnqueueSVMMemFill>()(queue, to, pattern, pattern_size, size, waits, wait_list, out);
  });
}

}  // namespace

void put_command_hooks(std::array<void*, kSlots>& table) {
  put<kEnqueueNDRangeKernel>(table, nd_range_kernel);
  put<kEnqueueTask>(table, task);
  put<kEnqueueReadBuffer>(table, read_buffer);
  put<kEnqueueWriteBuffer>(table, write_buffer);
  put<kEnqueueCopyBuffer>(table, copy_buffer);
  put<kEnqueueReadBufferRect>(table, read_buffer_rect);
  put<kEnqueueWriteBufferRect>(table, write_buffer_rect);
  put<kEnqueueCopyBufferRect>(table, copy_buffer_rect);
  put<kEnqueueFillBuffer>(table, fill_buffer);
  put<kEnqueueMapBuffer>(table, map_buffer);
  put<kEnqueueMapImage>(table, map_image);
  put<kEnqueueUnmapMemObject>(table, unmap);
  put<kEnqueueReadImage>(table, read_image);
  put<kEnqueueWriteImage>(table, write_image);
  put<kEnqueueCopyImage>(table, copy_image);
  put<kEnqueueCopyImageToBuffer>(table, copy_image_to_buffer);
  put<kEnqueueCopyBufferToImage>(table, copy_buffer_to_image);
  put<kEnqueueFillImage>(table, fill_image);
  put<kEnqueueSVMMemcpy>(table, svm_memcpy);
  put<kEnqueueSVMMemFill>(table, svm_fill);
}

}  // namespace ai_prof::opencl
