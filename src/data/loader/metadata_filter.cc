#include "loader/metadata_filter.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace yard::loader {

using nlohmann::json;

struct MetadataFilter::Node {
  enum class Kind { kLiteral, kField, kCompare, kNot, kAnd, kOr };
  Kind kind = Kind::kLiteral;
  json literal;
  std::vector<std::string> path;  // of a field
  std::string comparison;
  std::unique_ptr<Node> left, right;
};

namespace {

using Node = MetadataFilter::Node;
using NodePointer = std::unique_ptr<Node>;

constexpr int kDepthMax = 100;  // of parentheses and nots

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name(char c) {
  return is_name_start(c) || (c >= '0' && c <= '9') || c == '.' || c == '-';
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<NodePointer> parse() {
    YARD_ASSIGN(NodePointer root, parse_chain("or", 0));
    skip_space();
    if (at_ < text_.size()) return expected("'and', 'or' or the end");
    return root;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
  }
  Error expected(std::string_view what) const {
    const std::string_view rest = text_.substr(at_, 20);
    return {
        Code::kInvalidArgument,
        fmt::format("filter '{}': {} was expected at character {}, not {}", text_, what, at_ + 1,
                    rest.empty() ? std::string("the end") : fmt::format("'{}'", rest))};
  }
  bool take_word(std::string_view word) {
    skip_space();
    const std::string_view rest = text_.substr(at_);
    if (!rest.starts_with(word) || (rest.size() > word.size() && is_name(rest[word.size()])))
      return false;
    at_ += word.size();
    return true;
  }

  // Operands joined by "or" or, one level below, by "and".
  Result<NodePointer> parse_chain(std::string_view word, int depth) {
    const bool is_or = word == "or";
    const auto operand = [&]() -> Result<NodePointer> {
      return is_or ? parse_chain("and", depth) : parse_not(depth);
    };
    YARD_ASSIGN(NodePointer left, operand());
    while (take_word(word)) {
      YARD_ASSIGN(NodePointer right, operand());
      left = join(is_or ? Node::Kind::kOr : Node::Kind::kAnd, std::move(left), std::move(right));
    }
    return left;
  }

  Result<NodePointer> parse_not(int depth) {
    if (depth > kDepthMax) return expected("something less nested");
    if (!take_word("not")) return parse_comparison(depth);
    YARD_ASSIGN(NodePointer operand, parse_not(depth + 1));
    return join(Node::Kind::kNot, std::move(operand), nullptr);
  }

  Result<NodePointer> parse_comparison(int depth) {
    YARD_ASSIGN(NodePointer left, parse_operand(depth));
    skip_space();
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!text_.substr(at_).starts_with(op)) continue;
      at_ += op.size();
      YARD_ASSIGN(NodePointer right, parse_operand(depth));
      left = join(Node::Kind::kCompare, std::move(left), std::move(right));
      left->comparison = op;
      break;
    }
    return left;
  }

  Result<NodePointer> parse_operand(int depth) {
    skip_space();
    if (at_ == text_.size()) return expected("a field or a value");
    if (text_[at_] == '(') {
      ++at_;
      if (depth > kDepthMax) return expected("something less nested");
      YARD_ASSIGN(NodePointer inner, parse_chain("or", depth + 1));
      skip_space();
      if (at_ == text_.size() || text_[at_] != ')') return expected("')'");
      ++at_;
      return inner;
    }
    if (text_[at_] == '"') return parse_string();
    for (const auto& [word, value] :
         {std::pair<const char*, json>{"true", true}, {"false", false}, {"null", nullptr}})
      if (take_word(word)) return literal(value);
    if (is_name_start(text_[at_])) return parse_field();
    return parse_number();
  }

  Result<NodePointer> parse_string() {
    const size_t begin = at_++;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    if (at_ >= text_.size()) {
      at_ = text_.size();
      return expected("the string's closing '\"'");
    }
    ++at_;
    json value = json::parse(text_.substr(begin, at_ - begin), nullptr, false);
    if (!value.is_string()) {
      at_ = begin;
      return expected("a string as JSON has it");
    }
    return literal(std::move(value));
  }

  Result<NodePointer> parse_number() {
    double value = 0;
    const char* begin = text_.data() + at_;
    const auto [end, failed] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (failed != std::errc()) return expected("a field or a value");
    at_ += size_t(end - begin);
    return literal(value);
  }

  Result<NodePointer> parse_field() {
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::kField;
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    std::string_view name = text_.substr(begin, at_ - begin);
    while (true) {
      const size_t dot = name.find('.');
      node->path.emplace_back(name.substr(0, dot));
      if (dot == name.npos) return node;
      name.remove_prefix(dot + 1);
    }
  }

  static NodePointer literal(json value) {
    auto node = std::make_unique<Node>();
    node->literal = std::move(value);
    return node;
  }
  static NodePointer join(Node::Kind kind, NodePointer left, NodePointer right) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->left = std::move(left);
    node->right = std::move(right);
    return node;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

bool is_true(const json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

bool compare(const json& left, const std::string& how, const json& right) {
  if (how == "==") return left == right;
  if (how == "!=") return left != right;
  const bool are_comparable =
      (left.is_number() && right.is_number()) || (left.is_string() && right.is_string());
  if (!are_comparable) return false;
  if (how == "<") return left < right;
  if (how == "<=") return left <= right;
  if (how == ">") return left > right;
  return left >= right;
}

json evaluate(const Node& node, const json& metadata) {
  switch (node.kind) {
    case Node::Kind::kLiteral:
      return node.literal;
    case Node::Kind::kField: {
      const json* at = &metadata;
      for (const std::string& name : node.path) {
        if (!at->is_object()) return nullptr;
        const auto found = at->find(name);
        if (found == at->end()) return nullptr;
        at = &*found;
      }
      return *at;
    }
    case Node::Kind::kCompare:
      return compare(evaluate(*node.left, metadata), node.comparison,
                     evaluate(*node.right, metadata));
    case Node::Kind::kNot:
      return !is_true(evaluate(*node.left, metadata));
    case Node::Kind::kAnd:
      return is_true(evaluate(*node.left, metadata)) && is_true(evaluate(*node.right, metadata));
    case Node::Kind::kOr:
      return is_true(evaluate(*node.left, metadata)) || is_true(evaluate(*node.right, metadata));
  }
  return nullptr;
}

}  // namespace

MetadataFilter::MetadataFilter(std::unique_ptr<Node> root) : root_(std::move(root)) {}
MetadataFilter::MetadataFilter(MetadataFilter&&) noexcept = default;
MetadataFilter& MetadataFilter::operator=(MetadataFilter&&) noexcept = default;
MetadataFilter::~MetadataFilter() = default;

Result<MetadataFilter> MetadataFilter::parse(std::string_view text) {
  YARD_ASSIGN(NodePointer root, Parser(text).parse());
  return MetadataFilter(std::move(root));
}

Result<bool> MetadataFilter::matches(std::string_view text) const {
  const json metadata = json::parse(text, nullptr, false);
  if (!metadata.is_object()) return Error{Code::kCorrupt, "the metadata is no JSON object"};
  return is_true(evaluate(*root_, metadata));
}

}  // namespace yard::loader
