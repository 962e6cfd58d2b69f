#include "core/crc32c.h"

#include <array>
#include <cstring>

namespace ai_prof {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;  // reflected

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

// Slicing by eight: table k advances a byte over k further zero bytes.
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][i] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t i = 0; i < 256; ++i) {
      const std::uint32_t before = tables[k - 1][i];
      tables[k][i] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint64_t load64(const std::byte* at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(std::span<const std::byte> bytes,
                                                                std::uint32_t crc) noexcept {
  std::uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) state = __builtin_ia32_crc32di(state, load64(at));
  auto narrow = static_cast<std::uint32_t>(state);
  for (; left > 0; --left, ++at) narrow = __builtin_ia32_crc32qi(narrow, static_cast<unsigned char>(*at));
  return ~narrow;
}
#endif

}  // namespace

std::uint32_t crc32c_table(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
  std::uint32_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load64(at) ^ state;
    state = 0;
    for (std::size_t k = 0; k < 8; ++k) state ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; left > 0; --left, ++at) {
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<unsigned char>(*at)) & 0xFF];
  }
  return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
#if defined(__x86_64__)
  static const bool hardware = __builtin_cpu_supports("sse4.2") != 0;
  if (hardware) return crc32c_hardware(bytes, crc);
#endif
  return crc32c_table(bytes, crc);
}

}  // namespace ai_prof
