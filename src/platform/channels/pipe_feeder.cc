#include "channels/pipe_feeder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <mutex>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/log.h"
#include "base/stop_token.h"
#include "storage/parallel_get.h"

namespace yard::channels {
namespace {

// open() of a FIFO for writing succeeds once somebody reads; there is no event to wait for.
constexpr std::chrono::milliseconds kReaderLookPeriod{5};
constexpr size_t kInflateBytes = 256 << 10;

using Sink = std::function<Status(std::span<const std::byte>)>;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// One or several gzip members, whatever the pieces they come in.
class Inflater {
 public:
  explicit Inflater(Sink sink) : sink_(std::move(sink)), out_(kInflateBytes) {
    YARD_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK);
  }
  Inflater(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  Status write(std::span<const std::byte> bytes) {
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream_.avail_in = uInt(bytes.size());
    while (stream_.avail_in > 0) {
      if (is_at_end_) inflateReset(&stream_);
      is_at_end_ = false;
      stream_.next_out = reinterpret_cast<Bytef*>(out_.data());
      stream_.avail_out = uInt(out_.size());
      const int state = inflate(&stream_, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END && state != Z_BUF_ERROR)
        return Error{Code::kCorrupt, "is no gzip, or damaged"};
      is_at_end_ = state == Z_STREAM_END;
      YARD_TRY(sink_(std::span(out_).first(out_.size() - stream_.avail_out)));
    }
    return Ok{};
  }
  Status finish() const {
    if (is_at_end_) return Ok{};
    return Error{Code::kCorrupt, "the gzip stream is cut"};
  }

 private:
  Sink sink_;
  std::vector<std::byte> out_;
  z_stream stream_ = {};
  bool is_at_end_ = true;
};

}  // namespace

struct PipeFeeder::Impl {
  ChannelConfig channel;
  std::vector<PipeRecord> records;
  std::string folder;
  StopSource stop;
  std::thread thread;
  mutable std::mutex mutex;
  std::optional<Error> first_error;

  std::string fifo(uint64_t epoch) const {
    return fmt::format("{}/{}_{}", folder, channel.name, epoch);
  }
  Status make_fifo(uint64_t epoch) const;
  Result<UniqueFd> wait_for_reader(uint64_t epoch) const;
  Status write(int fd, std::span<const std::byte> bytes) const;
  Status feed_part(int fd, const PipePart& part) const;
  Status feed_content(const PipePart& part, const Sink& sink) const;
  Status feed_epoch(int fd, uint64_t epoch) const;
  void run();
};

Status PipeFeeder::Impl::make_fifo(uint64_t epoch) const {
  ::unlink(fifo(epoch).c_str());
  if (::mkfifo(fifo(epoch).c_str(), 0666) == 0) return Ok{};
  return errno_error(fifo(epoch), errno);
}

Result<UniqueFd> PipeFeeder::Impl::wait_for_reader(uint64_t epoch) const {
  while (!stop.token().wait_for(kReaderLookPeriod)) {
    UniqueFd fd(::open(fifo(epoch).c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno != ENXIO && errno != EINTR) return errno_error(fifo(epoch), errno);
  }
  return Error{Code::kCancelled, "stopped"};
}

Status PipeFeeder::Impl::write(int fd, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put >= 0) {
      bytes = bytes.subspan(size_t(put));
      continue;
    }
    if (errno == EPIPE) return Error{Code::kCancelled, "the reader has closed its pipe"};
    if (errno != EAGAIN && errno != EINTR) return errno_error(channel.name, errno);
    pollfd items[2] = {{.fd = fd, .events = POLLOUT, .revents = 0},
                       {.fd = stop.token().fd(), .events = POLLIN, .revents = 0}};
    ::poll(items, 2, -1);
    if (stop.token().stopped()) return Error{Code::kCancelled, "stopped"};
  }
  return Ok{};
}

Status PipeFeeder::Impl::feed_content(const PipePart& part, const Sink& sink) const {
  if (!part.store) return sink(as_bytes(part.text));
  const auto read = [&](const Sink& to) {
    return storage::read_in_order(*part.store, part.info, to, {.stop = stop.token()});
  };
  if (!channel.is_gzip) return read(sink);
  Inflater inflater(sink);
  YARD_TRY(read([&](std::span<const std::byte> bytes) { return inflater.write(bytes); }));
  return inflater.finish();
}

Status PipeFeeder::Impl::feed_part(int fd, const PipePart& part) const {
  const Sink to_pipe = [&](std::span<const std::byte> bytes) { return write(fd, bytes); };
  if (!channel.as_record_io) return feed_content(part, to_pipe);
  // A record says its length first: the content is gathered.
  std::string content;
  YARD_TRY(feed_content(part, [&](std::span<const std::byte> bytes) -> Status {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    YARD_TRY(record_io_header(content.size()));
    return Ok{};
  }));
  YARD_ASSIGN(const std::string header, record_io_header(content.size()));
  content.append(record_io_padding(content.size()), '\0');
  YARD_TRY(write(fd, as_bytes(header)));
  return write(fd, as_bytes(content));
}

Status PipeFeeder::Impl::feed_epoch(int fd, uint64_t epoch) const {
  std::vector<size_t> order;
  if (channel.shuffle_seed) order = shuffled_order(records.size(), *channel.shuffle_seed, epoch);
  for (size_t i = 0; i < records.size(); ++i)
    for (const PipePart& part : records[order.empty() ? i : order[i]])
      if (auto fed = feed_part(fd, part); !fed)
        return std::move(fed).error().while_(part.store ? part.info.key : channel.name);
  return Ok{};
}

void PipeFeeder::Impl::run() {
  // A reader that goes away must end an epoch, not us.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  for (uint64_t epoch = 0; !stop.token().stopped(); ++epoch) {
    const auto fd = wait_for_reader(epoch);
    if (!fd) break;
    Status fed = feed_epoch(fd->get(), epoch);
    // Before this epoch's end is seen, since the reader then opens the next one at once.
    if (const Status made = make_fifo(epoch + 1); !made && fed) fed = made;
    ::unlink(fifo(epoch).c_str());
    if (fed || fed.error().code == Code::kCancelled) continue;
    log_error("channel '{}': {}", channel.name, fed.error().message);
    const std::lock_guard lock(mutex);
    if (!first_error) first_error = fed.error();
  }
}

PipeFeeder::PipeFeeder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

PipeFeeder::~PipeFeeder() {
  impl_->stop.request();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<PipeFeeder>> PipeFeeder::start(ChannelConfig channel,
                                                      std::vector<PipeRecord> records,
                                                      const std::string& folder) {
  auto impl = std::make_unique<Impl>();
  impl->channel = std::move(channel);
  impl->records = std::move(records);
  impl->folder = folder;
  YARD_TRY(impl->make_fifo(0));
  Impl* const raw = impl.get();
  std::unique_ptr<PipeFeeder> feeder(new PipeFeeder(std::move(impl)));
  raw->thread = std::thread([raw] { raw->run(); });
  return feeder;
}

Status PipeFeeder::status() const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->first_error) return *impl_->first_error;
  return Ok{};
}

}  // namespace yard::channels
