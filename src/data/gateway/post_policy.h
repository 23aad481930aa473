// Who may upload by an HTML form, and what: the policy in the form (S3's "POST object"), signed by
// a key that is known here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gateway/s3_error.h"
#include "net/sigv4.h"

namespace yard::gateway {

// The fields of a form in their order. Names are compared as S3 does, without regard to case.
class FormFields {
 public:
  void add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }
  // The first of that name.
  std::optional<std::string_view> find(std::string_view name) const;
  std::string_view value_or(std::string_view name, std::string_view otherwise) const {
    return find(name).value_or(otherwise);
  }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

// The access key that the form names; empty: none. Pure.
std::string_view form_access_key(const FormFields& fields);

// Whether the policy in the form is signed by `credentials`, by Signature Version 4 or, as boto3
// does by default, 2. AccessDenied, InvalidAccessKeyId, SignatureDoesNotMatch. Pure.
S3Status check_form_signature(const FormFields& fields, const Credentials& credentials,
                              Clock::Wall now);

// How large the file may be.
struct FileBounds {
  uint64_t size_bytes_min = 0;
  uint64_t size_bytes_max = UINT64_MAX;
};
// Whether the policy allows a form with these fields, their variables replaced, into `bucket` now.
// InvalidPolicyDocument; AccessDenied, naming the condition that fails. Pure.
S3Result<FileBounds> check_policy(const FormFields& fields, std::string_view bucket,
                                  Clock::Wall now);

}  // namespace yard::gateway
