#include "logs/line_splitter.h"

#include <utility>

namespace yard::logs {

void LineSplitter::feed(std::string_view bytes, std::vector<std::string>& lines) {
  if (after_carriage_return_ && !bytes.empty()) {
    after_carriage_return_ = false;
    if (bytes.front() == '\n') bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    const size_t room = kLineBytesMax - partial_.size();
    const size_t end = bytes.substr(0, room + 1).find_first_of("\n\r");
    if (end == std::string_view::npos) {
      const std::string_view taken = bytes.substr(0, room);
      partial_.append(taken);
      bytes.remove_prefix(taken.size());
      if (!bytes.empty()) lines.push_back(std::exchange(partial_, {}));
      continue;
    }
    partial_.append(bytes.substr(0, end));
    lines.push_back(std::exchange(partial_, {}));
    const bool is_return = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    if (!is_return) continue;
    if (bytes.empty()) {
      after_carriage_return_ = true;
    } else if (bytes.front() == '\n') {
      bytes.remove_prefix(1);
    }
  }
}

bool LineSplitter::take_rest(std::string& line) {
  if (partial_.empty()) return false;
  line = std::exchange(partial_, {});
  return true;
}

}  // namespace yard::logs
