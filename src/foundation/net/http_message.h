// The parts of an HTTP message that both sides share: header fields, status names, dates.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace yard {

// ASCII only, as HTTP compares names.
bool equals_ignoring_case(std::string_view a, std::string_view b);

// True for text that may stand in a message as it is: RFC 9110's token; a value without CR, LF,
// NUL.
bool is_header_name(std::string_view text);
bool is_header_value(std::string_view text);

// Header fields in the order they came; names compare without case, a name may come more than once.
//
// Not thread-safe. Owns its text in one piece: a view that it returned is valid until the next
// change. Stores what it is given; what may be sent is checked when it is sent.
class Headers {
 public:
  struct Field {
    std::string_view name;
    std::string_view value;
  };
  class Iterator {
   public:
    Iterator(const Headers* headers, size_t index) : headers_(headers), index_(index) {}
    Field operator*() const { return (*headers_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const Headers* headers_;
    size_t index_;
  };

  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> fields);

  void add(std::string_view name, std::string_view value);
  void set(std::string_view name, std::string_view value);  // in the place of all of that name
  void remove(std::string_view name);
  void clear();  // keeps the memory

  std::optional<std::string_view> find(std::string_view name) const;  // the first of that name
  std::string_view value_or(std::string_view name, std::string_view otherwise) const;
  bool contains(std::string_view name) const { return find(name).has_value(); }
  // All values of that name with ", " between them, as RFC 9110 section 5.2 combines them.
  std::string joined(std::string_view name) const;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  Field operator[](size_t index) const;
  Iterator begin() const { return Iterator(this, 0); }
  Iterator end() const { return Iterator(this, size()); }

 private:
  struct Entry {
    size_t name_at;
    size_t name_bytes;
    size_t value_at;
    size_t value_bytes;
  };

  std::string text_;  // names and values, one behind the other
  std::vector<Entry> entries_;
};

struct ResponseHead {
  int status = 0;
  Headers headers;
};

// "Not Found" for 404, "" for a status without a name.
std::string_view status_reason(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7), whole seconds.
std::string format_http_date(std::chrono::system_clock::time_point time);
// That form only, not the two obsolete ones. kInvalidArgument for anything else.
Result<std::chrono::system_clock::time_point> parse_http_date(std::string_view text);

}  // namespace yard
