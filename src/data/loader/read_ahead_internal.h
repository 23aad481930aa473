// ReadAhead: the samples that a loader will want next, fetched from a remote store before they are
// wanted, within a budget of bytes.
//
// They are fetched in stretches of the sequence. Samples of a stretch that are neighbours in their
// shard come by one request, up to 8 MiB; the requests are in the order in which their first sample
// is wanted. A stretch is planned when the one before it begins to be wanted, and its requests are
// sent one by one while three quarters of that are: what fetching costs the machine is then the
// same at any time, and decoding never waits behind a burst of it. A stretch is twice as long as
// the one before where that helps: where a sample was wanted that was not there yet, or where it
// does not yet cover the shuffle's window, all of whose samples are neighbours (`Limits`). So a
// store that stalls once is better prepared for, and nothing is fetched long before its time.
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
  // nullopt: need not be fetched, take() gives nothing for it. From any thread.
  using SampleAt = std::function<std::optional<uint64_t>(uint64_t number)>;
  struct Limits {
    uint64_t bytes_max = 0;
    // The end of the shuffle's window that a number lies in; none: neighbours are not in sight.
    std::function<uint64_t(uint64_t number)> window_end;
  };

  // `reader` must outlive it, and samples that were taken must be gone before it is. The destructor
  // waits for requests under way.
  ReadAhead(SampleReader& reader, SampleAt sample_at, Limits limits);
  ~ReadAhead();

  // Blocks until the sample is there; each number is taken once, in about their order. The Error of
  // its reading; nullopt as SampleAt.
  Result<std::optional<EncodedSample>> take(uint64_t number);

 private:
  struct Entry {
    bool is_wanted = false;  // take() waits for it
    std::optional<Result<std::optional<EncodedSample>>> result;
  };
  struct Wanted {
    uint64_t number = 0;
    SampleRange range;
  };
  // Samples that come by one request.
  struct Run {
    std::vector<Wanted> samples;  // by offset
    uint64_t first_number = 0;    // the lowest of them
    uint64_t wanted_bytes = 0;
    bool can_take(const SampleRange& range) const;
    uint64_t begin() const { return samples.front().range.begin(); }
    uint64_t end() const { return samples.back().range.end(); }
    uint64_t size_bytes() const { return end() - begin(); }
  };

  // Of the sequence: [begin, end), fetched while what lies behind `from` is used.
  struct Stretch {
    uint64_t from = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t guessed_bytes = 0;
  };

  void start_more();
  void send_due();
  uint64_t next_stretch_size();
  Result<uint64_t> find_stretch(const Stretch& stretch);
  void plan(const Stretch& stretch, std::vector<Run> runs);
  static std::vector<Run> runs_of(std::vector<Wanted> samples);
  Result<uint64_t> fetch(Run& run);
  std::shared_ptr<std::byte[]> memory_of(const Run& run);
  void finish(uint64_t number, Result<std::optional<EncodedSample>> result);

  SampleReader& reader_;
  const SampleAt sample_at_;
  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Entry> entries_;  // begun and not yet taken
  uint64_t next_ = 0;                  // the first that is not begun
  uint64_t wanted_end_ = 0;            // up to here someone waits: begun whatever the budget
  uint64_t stretch_begin_ = 0;         // of the last one
  uint64_t stretch_size_ = 0;
  bool was_late_ = false;
  // Not sent yet, by how many samples must have been wanted before.
  std::multimap<uint64_t, Run> planned_;
  uint64_t bytes_ = 0;   // of runs, from their planning until nothing of them is used any more
  double sample_bytes_;  // a mean
  bool is_ending_ = false;
  storage::TransferPool pool_;  // last: its threads use the others
};

}  // namespace yard::loader
