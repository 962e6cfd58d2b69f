// CRC-32C (Castagnoli), as iSCSI and ext4 use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ai_prof {

// `crc` continues an earlier result; 0 starts.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

// The portable path, for machines without the instruction and for tests.
std::uint32_t crc32c_table(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace ai_prof
