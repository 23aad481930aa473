#include "gateway/xml.h"

#include <fmt/format.h>

namespace yard::gateway {

std::string escape_xml(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          escaped += fmt::format("&#x{:x};", static_cast<unsigned char>(c));
        else
          escaped += c;
    }
  }
  return escaped;
}

XmlWriter::XmlWriter(std::string_view root, Namespace space)
    : document_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<") {
  document_ += root;
  if (space == Namespace::kS3) document_ += " xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";
  document_ += '>';
  open_.emplace_back(root);
}

XmlWriter& XmlWriter::open_with(std::string_view name, std::string_view attributes) {
  document_.append("<").append(name);
  if (!attributes.empty()) document_.append(" ").append(attributes);
  document_.append(">");
  open_.emplace_back(name);
  return *this;
}

XmlWriter& XmlWriter::close() {
  YARD_CHECK(!open_.empty());
  document_.append("</").append(open_.back()).append(">");
  open_.pop_back();
  return *this;
}

XmlWriter& XmlWriter::text(std::string_view name, std::string_view value) {
  document_.append("<").append(name).append(">").append(escape_xml(value));
  document_.append("</").append(name).append(">");
  return *this;
}

XmlWriter& XmlWriter::number(std::string_view name, uint64_t value) {
  return text(name, std::to_string(value));
}

XmlWriter& XmlWriter::flag(std::string_view name, bool value) {
  return text(name, value ? "true" : "false");
}

std::string XmlWriter::take() {
  while (!open_.empty()) close();
  return std::move(document_);
}

}  // namespace yard::gateway
