#include "api/query_form.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace yard::api {
namespace {

constexpr size_t kPairsMax = 10'000;
constexpr int kDepthMax = 16;

// "Dimensions.member.1.Name" is a path through these.
struct FormNode {
  std::optional<std::string> value;
  std::map<std::string, FormNode, std::less<>> children;

  const FormNode* find(std::string_view name) const {
    const auto found = children.find(name);
    return found == children.end() ? nullptr : &found->second;
  }
};

AwsResult<FormNode> tree_of(const std::vector<QueryPair>& form) {
  if (form.size() > kPairsMax) return AwsError("MalformedInput", "the form has too many fields");
  FormNode root;
  for (const QueryPair& pair : form) {
    FormNode* node = &root;
    std::string_view rest = pair.name;
    for (int depth = 0; !rest.empty(); ++depth) {
      if (depth == kDepthMax) return AwsError("MalformedInput", "a field is nested too deep");
      const std::string_view part = rest.substr(0, rest.find('.'));
      node = &node->children[std::string(part)];
      rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    }
    if (node->value) return AwsError("MalformedInput", pair.name + " is given twice");
    node->value = pair.value;
  }
  return root;
}

// "1", "2", ... in the order of their numbers.
std::vector<const FormNode*> numbered(const FormNode& node) {
  std::map<uint32_t, const FormNode*> by_number;
  for (const auto& [name, child] : node.children) {
    uint32_t number = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (failed == std::errc{} && end == name.data() + name.size()) by_number[number] = &child;
  }
  std::vector<const FormNode*> nodes;
  for (const auto& [number, child] : by_number) nodes.push_back(child);
  return nodes;
}

AwsError wrong_value(std::string_view value, std::string_view wanted) {
  return AwsError("ValidationError",
                  "'" + std::string(value.substr(0, 64)) + "' is not " + std::string(wanted));
}

AwsResult<Json> json_of_scalar(const Shape& shape, const std::string& text) {
  const char* end = text.data() + text.size();
  switch (shape.kind) {
    case ShapeKind::kInteger:
    case ShapeKind::kLong: {
      int64_t number = 0;
      const auto [stop, failed] = std::from_chars(text.data(), end, number);
      if (failed != std::errc{} || stop != end) return wrong_value(text, "a whole number");
      return Json(number);
    }
    case ShapeKind::kFloat:
    case ShapeKind::kDouble: {
      double number = 0;
      const auto [stop, failed] = std::from_chars(text.data(), end, number);
      if (failed != std::errc{} || stop != end) return wrong_value(text, "a number");
      return Json(number);
    }
    case ShapeKind::kBoolean:
      if (text != "true" && text != "false") return wrong_value(text, "true or false");
      return Json(text == "true");
    case ShapeKind::kTimestamp: {
      // The validator reads times of either form.
      return Json(text);
    }
    default:
      return Json(text);
  }
}

AwsResult<Json> json_of(const Shape& shape, const FormNode& node);

AwsResult<Json> json_of_list(const Shape& shape, const FormNode& node) {
  Json list = Json::array();
  for (const FormNode* element : numbered(node)) {
    YARD_ASSIGN(Json value, json_of(*shape.element, *element));
    list.push_back(std::move(value));
  }
  return list;
}

AwsResult<Json> json_of_map(const Shape& shape, const FormNode& node) {
  Json map = Json::object();
  for (const FormNode* entry : numbered(node)) {
    const FormNode* key = entry->find(shape.key_name);
    const FormNode* value = entry->find(shape.value_name);
    if (key == nullptr || !key->value || value == nullptr)
      return AwsError("MalformedInput", "an entry of a map lacks its key or its value");
    YARD_ASSIGN(map[*key->value], json_of(*shape.value, *value));
  }
  return map;
}

// Where the elements of a list or map stand.
const FormNode* elements_of(const Shape& shape, const FormNode& parent, std::string_view name) {
  if (!shape.flat_name.empty()) return parent.find(shape.flat_name);
  const FormNode* node = parent.find(name);
  if (node == nullptr) return nullptr;
  const FormNode* wrapped = node->find(shape.kind == ShapeKind::kMap ? "entry" : "member");
  return wrapped == nullptr ? node : wrapped;
}

AwsResult<Json> json_of_structure(const Shape& shape, const FormNode& node) {
  Json object = Json::object();
  for (const Shape::Member& member : shape.members) {
    const bool is_many =
        member.shape->kind == ShapeKind::kList || member.shape->kind == ShapeKind::kMap;
    const FormNode* found =
        is_many ? elements_of(*member.shape, node, member.name) : node.find(member.name);
    if (found == nullptr) continue;
    YARD_ASSIGN(object[member.name], json_of(*member.shape, *found));
  }
  return object;
}

AwsResult<Json> json_of(const Shape& shape, const FormNode& node) {
  if (shape.kind == ShapeKind::kStructure) return json_of_structure(shape, node);
  if (shape.kind == ShapeKind::kList) return json_of_list(shape, node);
  if (shape.kind == ShapeKind::kMap) return json_of_map(shape, node);
  return json_of_scalar(shape, node.value.value_or(""));
}

}  // namespace

AwsResult<std::vector<QueryPair>> parse_form(std::string_view body) {
  std::string text(body);
  std::ranges::replace(text, '+', ' ');
  auto pairs = parse_query(text);
  if (!pairs) return AwsError("MalformedQueryString", std::move(pairs).error().message);
  return *std::move(pairs);
}

AwsResult<Json> json_of_form(const Shape& shape, const std::vector<QueryPair>& form) {
  YARD_ASSIGN(const FormNode root, tree_of(form));
  return json_of(shape, root);
}

}  // namespace yard::api
