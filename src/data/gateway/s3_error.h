// How S3 reports failure: the names and HTTP statuses its clients act on, and a Result that carries
// them. Inside of this module they take the place of base/result.h's codes, which are too few to
// tell NoSuchBucket from NoSuchKey.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace yard::gateway {

// One row of S3's table of errors.
struct S3ErrorKind {
  std::string_view code;
  int http_status;
  std::string_view message;  // S3's own words
};

namespace s3 {
inline constexpr S3ErrorKind kAccessDenied{"AccessDenied", 403, "Access Denied"};
inline constexpr S3ErrorKind kBadDigest{
    "BadDigest", 400,
    "The Content-MD5 or checksum value that you specified did not match what "
    "the server received."};
inline constexpr S3ErrorKind kBucketAlreadyOwnedByYou{
    "BucketAlreadyOwnedByYou", 409,
    "Your previous request to create the named bucket succeeded and you already own it."};
inline constexpr S3ErrorKind kBucketNotEmpty{"BucketNotEmpty", 409,
                                             "The bucket you tried to delete is not empty."};
inline constexpr S3ErrorKind kEntityTooLarge{
    "EntityTooLarge", 400, "Your proposed upload exceeds the maximum allowed object size."};
inline constexpr S3ErrorKind kEntityTooSmall{
    "EntityTooSmall", 400, "Your proposed upload is smaller than the minimum allowed object size."};
inline constexpr S3ErrorKind kIncompleteBody{
    "IncompleteBody", 400,
    "You did not provide the number of bytes specified by the Content-Length HTTP header."};
// S3 has no full disk. 507 is no status that its clients repeat a request for.
inline constexpr S3ErrorKind kInsufficientStorage{
    "InsufficientStorage", 507, "The disk under this bucket is full; nothing was stored."};
inline constexpr S3ErrorKind kInternalError{"InternalError", 500,
                                            "We encountered an internal error. Please try again."};
inline constexpr S3ErrorKind kInvalidArgument{"InvalidArgument", 400, "Invalid argument."};
inline constexpr S3ErrorKind kInvalidBucketName{"InvalidBucketName", 400,
                                                "The specified bucket is not valid."};
inline constexpr S3ErrorKind kInvalidDigest{"InvalidDigest", 400,
                                            "The Content-MD5 you specified was invalid."};
inline constexpr S3ErrorKind kInvalidPart{
    "InvalidPart", 400,
    "One or more of the specified parts could not be found. The part may not have been uploaded, "
    "or the specified entity tag may not match the part's entity tag."};
inline constexpr S3ErrorKind kInvalidPartOrder{
    "InvalidPartOrder", 400,
    "The list of parts was not in ascending order. Parts must be ordered by part number."};
inline constexpr S3ErrorKind kInvalidRange{"InvalidRange", 416,
                                           "The requested range is not satisfiable"};
inline constexpr S3ErrorKind kInvalidRequest{"InvalidRequest", 400, "Invalid Request"};
inline constexpr S3ErrorKind kInvalidStorageClass{"InvalidStorageClass", 400,
                                                  "The storage class you specified is not valid"};
inline constexpr S3ErrorKind kInvalidUri{"InvalidURI", 400, "Couldn't parse the specified URI."};
inline constexpr S3ErrorKind kKeyTooLong{"KeyTooLongError", 400, "Your key is too long"};
inline constexpr S3ErrorKind kKmsNotFound{"KMS.NotFoundException", 400,
                                          "There are no KMS keys here."};
inline constexpr S3ErrorKind kMalformedXml{
    "MalformedXML", 400,
    "The XML you provided was not well-formed or did not validate against our published schema"};
inline constexpr S3ErrorKind kMaxMessageLengthExceeded{"MaxMessageLengthExceeded", 400,
                                                       "Your request was too big."};
inline constexpr S3ErrorKind kMetadataTooLarge{
    "MetadataTooLarge", 400, "Your metadata headers exceed the maximum allowed metadata size"};
inline constexpr S3ErrorKind kMethodNotAllowed{
    "MethodNotAllowed", 405, "The specified method is not allowed against this resource."};
inline constexpr S3ErrorKind kMissingContentLength{
    "MissingContentLength", 411, "You must provide the Content-Length HTTP header."};
inline constexpr S3ErrorKind kNoSuchBucket{"NoSuchBucket", 404,
                                           "The specified bucket does not exist"};
inline constexpr S3ErrorKind kNoSuchKey{"NoSuchKey", 404, "The specified key does not exist."};
inline constexpr S3ErrorKind kNoSuchUpload{
    "NoSuchUpload", 404,
    "The specified multipart upload does not exist. The upload ID might be invalid, or the "
    "multipart upload might have been aborted or completed."};
inline constexpr S3ErrorKind kNoSuchVersion{"NoSuchVersion", 404,
                                            "The specified version does not exist."};
inline constexpr S3ErrorKind kNotImplemented{
    "NotImplemented", 501,
    "A header or query you provided implies functionality that is not implemented."};
inline constexpr S3ErrorKind kNotModified{"NotModified", 304, "Not Modified"};
inline constexpr S3ErrorKind kPreconditionFailed{
    "PreconditionFailed", 412, "At least one of the pre-conditions you specified did not hold"};
inline constexpr S3ErrorKind kServiceUnavailable{"ServiceUnavailable", 503,
                                                 "Service is unable to handle request."};
inline constexpr S3ErrorKind kContentSha256Mismatch{
    "XAmzContentSHA256Mismatch", 400,
    "The provided 'x-amz-content-sha256' header does not match what was computed."};
// The client went away or broke HTTP: the HTTP server knows what to say, if anything.
inline constexpr S3ErrorKind kConnectionBroken{"", 0, "the request's body could not be read"};
}  // namespace s3

// What a client is told. Extra elements stand in the error document beside Code and Message.
struct S3Error {
  S3Error(const S3ErrorKind& kind) : S3Error(kind, std::string(kind.message)) {}
  S3Error(const S3ErrorKind& kind, std::string message)
      : code(kind.code), http_status(kind.http_status), message(std::move(message)) {}
  // What went wrong below S3: kUnavailable, kDeadlineExceeded and kExhausted are 503, which clients
  // repeat; the rest is InternalError. The message is for our log, not for the client.
  S3Error(Error error);

  S3Error with(std::string name, std::string value) && {
    elements.emplace_back(std::move(name), std::move(value));
    return std::move(*this);
  }

  std::string code;
  int http_status;
  std::string message;
  std::vector<std::pair<std::string, std::string>> elements;
};

// Of a failed system call on what we store: ENOSPC and EDQUOT are InsufficientStorage; what the
// file system does not let the gateway do (EACCES, EPERM, EROFS) is AccessDenied, which no client
// repeats.
S3Error s3_errno(std::string_view what, int errno_value);

// As Result, with S3Error. YARD_TRY and YARD_ASSIGN work on it; a Result's Error passes into it.
template <typename T>
class [[nodiscard]] S3Result {
 public:
  S3Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  S3Result(S3Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  S3Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  S3Result(const S3ErrorKind& kind) : state_(std::in_place_index<1>, kind) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return const_cast<S3Result*>(this)->value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &const_cast<S3Result*>(this)->value(); }
  const S3Error& error() const& { return const_cast<S3Result*>(this)->failure(); }
  S3Error&& error() && { return std::move(failure()); }

 private:
  T& value() {
    YARD_CHECK(state_.index() == 0);
    return *std::get_if<0>(&state_);
  }
  S3Error& failure() {
    YARD_CHECK(state_.index() == 1);
    return *std::get_if<1>(&state_);
  }

  std::variant<T, S3Error> state_;
};

using S3Status = S3Result<Ok>;

}  // namespace yard::gateway
