#include "loop/metrics_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/log.h"

namespace yard::loop {

MetricsWriter MetricsWriter::open(const std::string& output_dir, Clock& clock, int64_t first_step) {
  MetricsWriter writer;
  writer.clock_ = &clock;
  const std::string path = output_dir + "/metrics.jsonl";
  writer.lines_.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!writer.lines_.valid()) writer.complain(errno_error(path, errno));
  auto events = EventFile::create(output_dir + "/tensorboard", clock, first_step);
  if (events)
    writer.events_ = *std::move(events);
  else
    writer.complain(events.error());
  return writer;
}

void MetricsWriter::complain(const Status& status) {
  if (status || complained_) return;
  complained_ = true;
  log_warning("metrics cannot be written: {}", status.error().message);
}

void MetricsWriter::tell(std::string_view event, int64_t step, Json fields) {
  if (clock_ == nullptr) return;
  if (events_) {
    EventFile::Scalars scalars;
    for (const auto& [key, value] : fields.items())
      if (value.is_number())
        scalars.emplace_back(std::string(event) + "/" + key, value.get<double>());
    complain(events_->add_scalars(step, scalars));
  }
  if (!lines_.valid()) return;
  fields["t"] = to_unix_seconds(clock_->wall_now());
  fields["event"] = event;
  fields["global_step"] = step;
  const std::string line = fields.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (::write(lines_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    complain(errno_error("metrics.jsonl", errno));
}

void MetricsWriter::image(std::string_view tag, int64_t step, int width, int height,
                          std::string_view png) {
  if (events_) complain(events_->add_image(step, tag, width, height, png));
}

}  // namespace yard::loop
