// ReadAhead: the samples that a loader will want next, fetched from a remote store by many requests
// at once before they are wanted, within a budget of bytes.
//
// How far it reads ahead is found: 64 samples at first, twice as many whenever one was wanted that
// was not there yet (once per such stretch). So it does not take the CPU from the decoding to fetch
// what is not needed for long, and a store that stalls once is better prepared for.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "loader/sample_reader_internal.h"
#include "storage/transfer_pool.h"

namespace yard::loader {

// Thread-safe. The samples are those of a sequence without end, by their number in it.
class ReadAhead {
 public:
  // nullopt: need not be fetched, take() gives nothing for it. Pure; from any thread.
  using SampleAt = std::function<std::optional<uint64_t>(uint64_t number)>;

  // `reader` must outlive it. The destructor waits for requests under way.
  ReadAhead(SampleReader& reader, SampleAt sample_at, uint64_t bytes_max);
  ~ReadAhead();

  // Blocks until the sample is there; numbers are taken once each, in about their order. The Error
  // of its reading; nullopt as SampleAt.
  Result<std::optional<EncodedSample>> take(uint64_t number);

 private:
  struct Entry {
    std::optional<Result<std::optional<EncodedSample>>> result;
    uint64_t bytes = 0;
  };
  void start_more();
  Result<uint64_t> fetch(uint64_t number);  // bytes

  SampleReader& reader_;
  const SampleAt sample_at_;
  const uint64_t bytes_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Entry> entries_;  // begun and not yet taken
  uint64_t next_ = 0;                  // the first that is not begun
  uint64_t wanted_end_ = 0;            // up to here someone waits: begun whatever the budget
  uint64_t ahead_;                     // samples beyond that
  uint64_t taken_since_growth_ = 0;
  uint64_t bytes_ = 0;                 // of the entries
  uint64_t finished_count_ = 0;        // samples fetched so far, and their bytes
  uint64_t finished_bytes_ = 0;
  bool is_ending_ = false;
  storage::TransferPool pool_;  // last: its threads use the others
};

}  // namespace yard::loader
