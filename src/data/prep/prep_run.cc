#include "prep/prep_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <thread>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "prep/kept_queue_internal.h"
#include "prep/packer_internal.h"
#include "prep/step_process.h"
#include "prep/step_service.h"

namespace yard::prep {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kIdleWait = std::chrono::milliseconds(200);
constexpr auto kTickPeriod = std::chrono::seconds(1);

// What the threads of a run share.
class Pipeline {
 public:
  Pipeline(const PrepSpec& spec, const PrepPlaces& places, const PrepRunOptions& options,
           PrepMessages& messages, Ledger& ledger, Packer& packer, const StopToken& stop)
      : spec_(spec),
        places_(places),
        options_(options),
        messages_(messages),
        ledger_(ledger),
        packer_(packer),
        stop_(stop),
        worker_count_(spec.workers > 0 ? int(spec.workers)
                                       : int(std::max(1U, std::thread::hardware_concurrency()))),
        inbox_(size_t(worker_count_) * 8) {
    for (const StepSpec& step : spec.steps)
      stages_.push_back(std::make_unique<BoundedQueue<Work>>(size_t(step.batch) + 1));
    stages_.push_back(std::make_unique<BoundedQueue<Work>>(size_t(worker_count_) * 2));
  }

  Result<PrepReport> run() {
    std::vector<std::thread> threads;
    start(threads, "keep_alive", [this] { return keep_alive(); });
    std::atomic<int> workers_left = worker_count_;
    for (int i = 0; i < worker_count_; ++i)
      start(threads, "worker", [this, &workers_left] {
        Status worked = work();
        if (--workers_left == 0) stages_.front()->close();
        return worked;
      });
    for (size_t i = 0; i < spec_.steps.size(); ++i)
      start(threads, "step", [this, i] {
        Status stepped = run_step(i);
        if (!stepped) fail(stepped.error());
        while (stages_[i]->pop()) continue;
        stages_[i + 1]->close();
        return stepped;
      });
    start(threads, "packer", [this] { return pack(); });
    if (const Status received = receive(); !received) fail(received.error());
    inbox_.close();
    for (size_t i = 1; i < threads.size(); ++i) threads[i].join();
    is_done_.request();
    threads.front().join();
    return finish();
  }

 private:
  // The first error ends the run.
  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    has_failed_.request();
  }
  bool has_failed() const { return has_failed_.token().stopped(); }

  template <typename Body>
  void start(std::vector<std::thread>& threads, const char* what, Body body) {
    threads.emplace_back([this, what, body = std::move(body)] {
      try {
        if (const Status done = body(); !done) fail(done.error());
      } catch (const std::exception& error) {
        fail({Code::kInternal, fmt::format("{}: {}", what, error.what())});
        close_all();
      }
    });
  }
  void close_all() {
    inbox_.close();
    for (auto& stage : stages_) stage->close();
  }

  // Whether more may come than is there.
  bool is_fed() const { return options_.follow || (!spec_.end_marker.empty() && !has_end_marker_); }

  Status receive() {
    auto last_scan = Clock::now();
    auto last_tick = Clock::now();
    while (!stop_.stopped() && !has_failed()) {
      if (options_.follow && spec_.rescan.count() > 0 && Clock::now() - last_scan > spec_.rescan) {
        YARD_TRY(scan());
        last_scan = Clock::now();
      }
      queue::ReceiveOptions wanted;
      wanted.count_max = worker_count_ * 4;
      wanted.visibility_timeout_s = int64_t(spec_.visibility.count());
      wanted.wait = kIdleWait;
      YARD_ASSIGN(auto messages, messages_.receive(wanted, stop_));
      if (messages.empty()) {
        YARD_ASSIGN(const bool is_done, is_at_end());
        if (is_done) return Ok{};
      }
      if (messages.empty() || Clock::now() - last_tick > kTickPeriod) {
        last_tick = Clock::now();
        if (!send_tick()) return Ok{};
      }
      for (queue::ReceivedMessage& message : messages) {
        ++in_pipeline_;
        ++taken_;
        note_in_work(message.receipt);
        if (!inbox_.push(std::move(message))) return Ok{};
      }
    }
    return Ok{};
  }

  // False: the run ends.
  bool send_tick() {
    Work tick;
    tick.fate = Fate::kTick;
    tick.is_idle = in_pipeline_ == 0;
    return stages_.back()->push(std::move(tick));
  }

  Result<bool> is_at_end() {
    YARD_ASSIGN(const bool is_empty, is_drained());
    if (options_.follow) return false;
    if (spec_.end_marker.empty()) return is_empty;
    if (!has_end_marker_) {
      auto marker = places_.source->head(places_.source_prefix + spec_.end_marker);
      if (!marker && marker.error().code != Code::kNotFound) return marker.error();
      has_end_marker_ = marker.has_value();
    }
    if (!is_empty || !has_end_marker_) return false;
    // Notifications come late, or not at all: a listing has the last word.
    YARD_ASSIGN(const ScanCounts counts, scan());
    return counts.accepted == 0;
  }

  // Nothing in work, nothing held, nothing that will come back.
  Result<bool> is_drained() {
    YARD_ASSIGN(const queue::QueueCounts counts, messages_.counts());
    waiting_ = counts.visible + counts.delayed;
    tell();
    if (in_pipeline_ != 0) return false;
    return counts.visible == 0 && counts.in_flight == 0 && counts.delayed == 0;
  }

 public:
  Result<ScanCounts> scan() {
    YARD_ASSIGN(const ScanCounts counts,
                scan_source(places_, messages_, places_.source_prefix, stop_));
    scanned_ = counts.pictures;
    accepted_ += counts.accepted;
    return counts;
  }

 private:
  void note_in_work(const std::string& receipt) {
    const std::lock_guard lock(mutex_);
    in_work_.insert(receipt);
  }

  Status work() {
    const Source source{*places_.source, places_.source_prefix, places_.bucket};
    while (auto message = inbox_.pop()) {
      const int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
      // After a failure nothing is worth its work; the message comes back.
      if (has_failed()) continue;
      Work done = take_in(*message, source, spec_, now_ms);
      if (!stages_.front()->push(std::move(done))) return Ok{};
    }
    return Ok{};
  }

  // What has gathered, up to a batch, the first of it waited for.
  static std::vector<Work> gather(BoundedQueue<Work>& in, size_t count_max) {
    std::vector<Work> batch;
    std::optional<Work> next = in.pop();
    while (next) {
      batch.push_back(*std::move(next));
      if (batch.size() == count_max || in.size() == 0) break;
      next = in.pop();
    }
    return batch;
  }

  Status run_step(size_t index) {
    const StepSpec& step = spec_.steps[index];
    std::unique_ptr<StepAsker> asker;
    if (step.url.empty())
      asker = std::make_unique<StepProcess>(step, places_.env);
    else
      asker = std::make_unique<StepService>(step);
    const std::string dir =
        fmt::format("{}/steps/{}-{}", places_.state_dir, ledger_.writer(), index);
    YARD_TRY(make_directories(dir));
    while (true) {
      std::vector<Work> batch = gather(*stages_[index], size_t(step.batch));
      if (batch.empty()) return Ok{};
      YARD_TRY(ask_step(*asker, step, dir, batch));
      for (Work& work : batch) {
        if (work.is_open() && index + 1 == spec_.steps.size()) judge(spec_, work);
        if (!stages_[index + 1]->push(std::move(work))) return Ok{};
      }
    }
  }

  Status ask_step(StepAsker& asker, const StepSpec& step, const std::string& dir,
                  std::vector<Work>& batch) {
    std::vector<StepRequest> requests;
    std::vector<Work*> asked;
    for (Work& work : batch) {
      if (!work.is_open()) continue;
      StepRequest request{work.object.key,
                          fmt::format("{}/{}.{}", dir, asked.size(), work.extension),
                          work.description.to_json()};
      YARD_TRY(write_picture(request.path, work.picture));
      requests.push_back(std::move(request));
      asked.push_back(&work);
    }
    if (requests.empty()) return Ok{};
    YARD_ASSIGN(const std::vector<StepAnswer> answers, asker.ask(requests, has_failed_.token()));
    for (size_t i = 0; i < asked.size(); ++i) {
      std::error_code ignored;
      std::filesystem::remove(requests[i].path, ignored);
      take_answer(step, answers[i], *asked[i]);
    }
    return Ok{};
  }

  static Status write_picture(const std::string& path, std::span<const std::byte> bytes) {
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.valid()) return errno_error(path, errno);
    while (!bytes.empty()) {
      const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
      if (count < 0) return errno_error(path, errno);
      bytes = bytes.subspan(size_t(count));
    }
    return Ok{};
  }

  static void take_answer(const StepSpec& step, const StepAnswer& answer, Work& work) {
    if (!answer.error.empty())
      return work.end(Fate::kReject, fmt::format("step {}: {}", step.name, answer.error));
    if (!answer.drop.empty())
      return work.end(Fate::kDrop, fmt::format("step_{}: {}", step.name, answer.drop));
    for (const auto& [name, value] : answer.fields.items()) {
      const bool is_text = value.is_string();
      work.description.set(clean_text(name).text,
                           is_text ? Json(clean_text(value.get<std::string>()).text) : value,
                           "step:" + step.name);
    }
  }

  Status pack() {
    while (std::optional<Work> work = stages_.back()->pop()) {
      const Status taken = work->fate == Fate::kTick ? tick(*work) : take(*std::move(work));
      if (!taken) {
        fail(taken.error());
        close_all();
        return taken;
      }
    }
    return has_failed() ? Status(Ok{}) : packer_.flush();
  }

  Status take(Work work) {
    const std::string receipt = work.receipt;
    if (spec_.steps.empty()) judge(spec_, work);
    YARD_TRY(packer_.take(std::move(work)));
    {
      const std::lock_guard lock(mutex_);
      in_work_.erase(receipt);
    }
    --in_pipeline_;
    if (++told_ % 64 == 0) tell();
    return Ok{};
  }

  // On the packer's thread, once a second at least.
  Status tick(const Work& tick) {
    YARD_TRY(packer_.refresh());
    const bool is_due = is_fed() ? packer_.held_for() > spec_.flush : tick.is_idle;
    if (packer_.holds_anything() && is_due) YARD_TRY(packer_.flush());
    if (is_fed() && Clock::now() - last_manifest_ > spec_.flush) {
      YARD_TRY(note_rejected());
      YARD_TRY(publish_manifest(spec_, places_, ledger_));
      last_manifest_ = Clock::now();
    }
    return Ok{};
  }

  // The queue is kept first: dead letters must not be known and nowhere.
  Status note_rejected() {
    const std::vector<ObjectVersion> rejected = packer_.take_rejected();
    if (rejected.empty()) return Ok{};
    YARD_TRY(keep_queue(spec_, places_));
    return ledger_.add_rejected(rejected);
  }

  // Messages in work and held stay invisible.
  Status keep_alive() {
    const auto period = std::chrono::milliseconds(spec_.visibility) / 3;
    while (!is_done_.token().wait_for(period)) {
      YARD_TRY(packer_.keep_alive());
      std::vector<std::string> receipts;
      {
        const std::lock_guard lock(mutex_);
        receipts.assign(in_work_.begin(), in_work_.end());
      }
      YARD_TRY(messages_.hide(receipts, int64_t(spec_.visibility.count())));
    }
    return Ok{};
  }

  PrepProgress progress() const {
    const PackerCounts counts = packer_.counts();
    PrepProgress progress;
    progress.taken = taken_;
    progress.packed = counts.packed;
    progress.dropped = counts.dropped;
    progress.rejected = counts.rejected;
    progress.shards = counts.shards;
    progress.waiting = waiting_;
    return progress;
  }
  void tell() {
    if (options_.progress) options_.progress(progress());
  }

  Result<PrepReport> finish() {
    if (error_) return *error_;
    YARD_TRY(note_rejected());
    YARD_TRY(keep_queue(spec_, places_));
    YARD_TRY(publish_manifest(spec_, places_, ledger_));
    tell();
    return PrepReport{progress(), packer_.counts().repeated, scanned_, accepted_};
  }

  const PrepSpec& spec_;
  const PrepPlaces& places_;
  const PrepRunOptions& options_;
  PrepMessages& messages_;
  Ledger& ledger_;
  Packer& packer_;
  const StopToken stop_;
  const int worker_count_;
  BoundedQueue<queue::ReceivedMessage> inbox_;
  std::vector<std::unique_ptr<BoundedQueue<Work>>> stages_;  // the last one is the packer's
  StopSource has_failed_;
  StopSource is_done_;
  std::atomic<int64_t> in_pipeline_ = 0;
  std::atomic<uint64_t> taken_ = 0;
  std::atomic<uint64_t> told_ = 0;
  std::atomic<int64_t> waiting_ = 0;
  std::atomic<uint64_t> scanned_ = 0;
  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<bool> has_end_marker_ = false;
  Clock::time_point last_manifest_ = Clock::now();  // the packer's thread's
  std::mutex mutex_;
  std::set<std::string> in_work_;  // receipts
  std::optional<Error> error_;
};

}  // namespace

Result<PrepReport> run_prep(const PrepSpec& spec, const PrepPlaces& places,
                            const PrepRunOptions& options, const StopToken& stop) {
  YARD_ASSIGN(Ledger ledger, open_ledger(places));
  YARD_TRY(fetch_queue(spec, places));
  YARD_ASSIGN(const auto messages, open_messages(spec, places));
  YARD_ASSIGN(const auto packer,
              Packer::open(spec,
                           {*messages, *places.output, places.output_prefix + spec.prefix,
                            places.source_prefix},
                           ledger));
  Pipeline pipeline(spec, places, options, *messages, ledger, *packer, stop);
  // Of those that share a queue one fills it.
  const bool is_filled_by_another = messages->is_shared() && places.share_index > 0;
  if (spec.scan && !is_filled_by_another) YARD_TRY(pipeline.scan());
  return pipeline.run();
}

}  // namespace yard::prep
