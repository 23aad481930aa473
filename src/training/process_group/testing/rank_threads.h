// Ranks as threads of one process.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace yard::process_group {

// Runs `body` for each rank; throws what the first of them threw, after all have ended.
inline void run_ranks(int count, const std::function<void(int rank)>& body) {
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace yard::process_group
