#include <array>
#include <thread>

#include "check.h"
#include "core/bounded_queue.h"

namespace {

using ai_prof::BoundedQueue;

struct Item {
  std::uint64_t thread;
  std::uint64_t number;
};

void keeps_order_and_refuses_when_full() {
  BoundedQueue<Item> queue(100);  // four cells of 24 bytes
  CHECK(queue.capacity() == 4);
  Item item{};
  CHECK(!queue.pop(item));
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(queue.push({round, i}));
    CHECK(!queue.push({}));
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(queue.pop(item) && item.thread == round && item.number == i);
    CHECK(!queue.pop(item));
  }
}

void many_producers_lose_nothing_silently() {
  constexpr std::size_t kThreads = 4;
  constexpr std::uint64_t kEach = 50'000;
  BoundedQueue<Item> queue(4096);
  std::array<std::uint64_t, kThreads> refused{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < kEach; ++i) refused[t] += queue.push({t, i}) ? 0 : 1;
    });
  }
  std::array<std::uint64_t, kThreads> got{};
  std::array<std::uint64_t, kThreads> next{};
  const auto take_all = [&] {
    Item item{};
    while (queue.pop(item)) {
      CHECK(item.number >= next[item.thread]);
      next[item.thread] = item.number + 1;
      ++got[item.thread];
    }
  };
  for (int i = 0; i < 1000; ++i) take_all();
  for (std::thread& thread : threads) thread.join();
  take_all();
  for (std::size_t t = 0; t < kThreads; ++t) CHECK(got[t] + refused[t] == kEach);
}

}  // namespace

int main() {
  keeps_order_and_refuses_when_full();
  many_producers_lose_nothing_silently();
  return ai_prof::test::verdict();
}
