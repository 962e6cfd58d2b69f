// How a test tells the mock libcupti what to pretend. The test dlopens the same file as the library does and
// finds these functions by name.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

struct MockCupti {
  CUptiResult subscribe_result = CUPTI_SUCCESS;
  CUptiResult enable_kernel_result = CUPTI_SUCCESS;
  std::uint32_t version = 130001;
  std::size_t record_growth = 0;              // bytes appended to every record, as newer releases do
  std::atomic<std::int64_t> clock_jump{0};    // added to the clock
  std::atomic<bool> last_record_runs{false};  // FlushAll(0) gives nothing back: a record is not complete
  unsigned flush_takes_ms = 0;
  unsigned forced_flush_takes_ms = 0;
  unsigned unsubscribe_takes_ms = 0;
  unsigned next_record_takes_ms = 0;
  std::atomic<bool> flush_stuck{false};   // a flush does not return while this is set
  std::atomic<bool> context_made{false};  // calls switched on from now on are recorded only with their kind;
                                          // the first work of the program makes one, too
  std::size_t dropped = 0;                // told, and reset, by cuptiActivityGetNumDroppedRecords
  // What the library did.
  std::atomic<bool> subscribed{false};
  std::atomic<unsigned> flushes{0};
  std::atomic<unsigned> finalized{0};
  std::atomic<unsigned> left_too_early{0};      // disabled or unsubscribed before the context was made
  std::atomic<unsigned> left_hooked{0};         // unsubscribed with its hooks in the program's calls
  std::atomic<unsigned> kept{0};                // last flushes with work in flight: CUPTI's memory for it
  std::atomic<unsigned> called_while_stuck{0};  // of the calls that mock_calls tells
};

extern "C" {
MockCupti* mock_cupti();
// The calls that begin and end a capture, in their order: a space after each, repeats left out.
void mock_calls(std::string* calls);
// Copies a record of `bytes` into the current buffer if its kind is enabled. Any thread.
void mock_emit(const void* record, std::size_t bytes);
// CUPTI's clock, ns.
std::uint64_t mock_now();
}
