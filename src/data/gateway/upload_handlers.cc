#include "gateway/handlers_internal.h"

namespace yard::gateway {

S3Status copy_object(Call&) {
  return s3::kNotImplemented;
}
S3Status create_upload(Call&) {
  return s3::kNotImplemented;
}
S3Status upload_part(Call&) {
  return s3::kNotImplemented;
}
S3Status upload_part_copy(Call&) {
  return s3::kNotImplemented;
}
S3Status complete_upload(Call&) {
  return s3::kNotImplemented;
}
S3Status abort_upload(Call&) {
  return s3::kNotImplemented;
}
S3Status list_parts(Call&) {
  return s3::kNotImplemented;
}
S3Status list_uploads(Call&) {
  return s3::kNotImplemented;
}

}  // namespace yard::gateway
