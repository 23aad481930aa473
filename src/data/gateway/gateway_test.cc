#include "gateway/gateway.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "gateway/credentials.h"
#include "gateway/testing/temp_root.h"
#include "net/uri.h"

namespace yard::gateway {
namespace {

struct Answer {
  int status = 0;
  std::string head;
  std::string body;
};

// A gateway and a client that signs, without threads: one request, one answer.
class GatewayTest : public testing::Test {
 protected:
  explicit GatewayTest(const Clock& clock = Clock::real()) : credentials_{"KEY", "secret", ""} {
    folder_.close();
    GatewayOptions options{.root = folder_.path().string(), .credentials = credentials_};
    options.domain = "s3.test";
    options.account_id = "111122223333";
    options.lookup = [](std::string_view key) -> std::optional<Credentials> {
      if (key != "READER") return std::nullopt;
      return Credentials{"READER", "other secret", ""};
    };
    options.authorize = [this](const StoreAccess& access) {
      accesses_.push_back(std::string(access.access_key) + " " + std::string(access.method) + " " +
                          std::string(access.raw_path));
      return access.access_key != "READER" || !access.changes;
    };
    options.event_sink = [this](const ObjectEvent& event, const NotificationRule&) {
      events_.push_back(event);
    };
    gateway_ = *Gateway::open(options, clock);
  }

  Answer send(const std::string& method, const std::string& target, const std::string& body = "",
              Headers headers = {}) {
    if (!headers.contains("host")) headers.set("host", "127.0.0.1");
    const size_t mark = target.find('?');
    const std::string query = mark == target.npos ? "" : target.substr(mark + 1);
    const Signer signer("us-east-1", "s3", Clock::real());
    const auto is_signed =
        signer.sign({method, std::string_view(target).substr(0, mark), query, headers},
                    credentials_, sha256_hex(body));
    for (const auto& [name, value] : is_signed.headers) headers.add(name, value);
    headers.set("content-length", std::to_string(body.size()));
    std::string text = method + " " + target + " HTTP/1.1\r\n";
    for (const auto& [name, value] : headers)
      text += std::string(name) + ": " + std::string(value) + "\r\n";
    return exchange(text + "connection: close\r\n\r\n" + body);
  }

  Answer exchange(const std::string& text) {
    int sockets[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const UniqueFd client(sockets[0]);
    EXPECT_EQ(::write(client.get(), text.data(), text.size()), ssize_t(text.size()));
    ::shutdown(client.get(), SHUT_WR);
    serve_connection(UniqueFd(sockets[1]), {}, gateway_->handler());
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = ::read(client.get(), buffer, sizeof buffer)) > 0;)
      answer.append(buffer, size_t(got));
    const size_t end = answer.find("\r\n\r\n");
    if (end == answer.npos) return {};
    return {std::stoi(answer.substr(9, 3)), answer.substr(0, end), answer.substr(end + 4)};
  }

  // Begins an upload of one part; its target, to be completed with `list_of_parts_`.
  std::string upload_part(const std::string& key) {
    const std::string begun = send("POST", "/b/" + key + "?uploads").body;
    const size_t at = begun.find("<UploadId>") + 10;
    const std::string id = begun.substr(at, begun.find('<', at) - at);
    EXPECT_EQ(send("PUT", "/b/" + key + "?partNumber=1&uploadId=" + id, "content").status, 200);
    return "/b/" + key + "?uploadId=" + id;
  }

  const std::string list_of_parts_ =
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"
      "\"9a0364b9e99bb480dd25e1f0284c8555\"</ETag></Part></CompleteMultipartUpload>";
  TempRoot folder_;
  Credentials credentials_;
  std::vector<ObjectEvent> events_;
  std::vector<std::string> accesses_;
  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTest, WhatIsPutIsGot) {
  const Answer put = send("PUT", "/b/a%20b", "content", {{"x-amz-meta-k", "v"}});
  EXPECT_EQ(put.status, 200);
  EXPECT_NE(put.head.find("ETag: \"9a0364b9e99bb480dd25e1f0284c8555\""), put.head.npos);
  const Answer got = send("GET", "/b/a%20b");
  EXPECT_EQ(got.body, "content");
  EXPECT_NE(got.head.find("x-amz-meta-k: v"), got.head.npos);
}

TEST_F(GatewayTest, AnErrorIsADocumentButForHead) {
  const Answer got = send("GET", "/b/none%26");
  EXPECT_EQ(got.status, 404);
  EXPECT_TRUE(got.body.starts_with(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchKey</Code>"
      "<Message>The specified key does not exist.</Message><Key>none&amp;</Key>"
      "<Resource>/b/none&amp;</Resource><RequestId>"))
      << got.body;
  const Answer head = send("HEAD", "/b/none");
  EXPECT_EQ(head.status, 404);
  EXPECT_EQ(head.body, "");
}

TEST_F(GatewayTest, NobodyIsServedUnsigned) {
  for (const char* line :
       {"GET / HTTP/1.1", "GET /b/k HTTP/1.1", "PUT /b/k HTTP/1.1", "DELETE /b HTTP/1.1"}) {
    const Answer answer = exchange(std::string(line) + "\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    EXPECT_EQ(answer.status, 403) << line;
    EXPECT_NE(answer.body.find("<Code>AccessDenied</Code>"), answer.body.npos);
  }
}

TEST_F(GatewayTest, AFurtherUserSignsWithItsOwnKeyAndMayDoWhatItIsAllowed) {
  ASSERT_EQ(send("PUT", "/b/k", "content").status, 200);
  credentials_ = {"READER", "other secret", ""};
  EXPECT_EQ(send("GET", "/b/k").body, "content");
  EXPECT_EQ(send("PUT", "/b/k", "changed").status, 403);
  EXPECT_EQ(send("DELETE", "/b/k").status, 403);
  EXPECT_EQ(send("POST", "/b/k?uploads").status, 403);
  EXPECT_EQ(send("GET", "/b/k").body, "content");
  EXPECT_EQ(accesses_[1], "READER GET /b/k");
  credentials_.secret_key = "secret";
  EXPECT_NE(send("GET", "/b/k").body.find("SignatureDoesNotMatch"), std::string::npos);
  credentials_.access_key = "NOBODY";
  EXPECT_NE(send("GET", "/b/k").body.find("InvalidAccessKeyId"), std::string::npos);
}

TEST_F(GatewayTest, TheHostMayNameTheBucket) {
  const Headers host = {{"host", "b.s3.test:9000"}};
  EXPECT_EQ(send("PUT", "/k", "by host", host).status, 200);
  EXPECT_EQ(send("GET", "/b/k").body, "by host");
  EXPECT_NE(send("GET", "/?list-type=2", "", host).body.find("<Key>k</Key>"), std::string::npos);
}

TEST_F(GatewayTest, AnotherOwnersBucketIsNotOurs) {
  EXPECT_EQ(send("HEAD", "/b", "", {{"x-amz-expected-bucket-owner", "111122223333"}}).status, 200);
  EXPECT_EQ(send("HEAD", "/b", "", {{"x-amz-expected-bucket-owner", "999999999999"}}).status, 403);
  EXPECT_EQ(send("HEAD", "/b", "", {{"x-amz-expected-bucket-owner", "me"}}).status, 400);
}

TEST_F(GatewayTest, DocumentsThatAreNoneAreRefused) {
  for (const char* target : {"/b?delete", "/b/k?uploadId=x"}) {
    const Answer answer = send("POST", target, "<Delete><Object>");
    EXPECT_TRUE(answer.status == 400 || answer.status == 404) << target;
  }
  EXPECT_EQ(send("PUT", "/b?notification", "no xml").status, 400);
  EXPECT_EQ(send("PUT", "/new-bucket", "no xml").status, 400);
}

TEST_F(GatewayTest, EventsAreToldAfterEachChangeToWhoAskedForThem) {
  send("PUT", "/b/before", "x");
  EXPECT_TRUE(events_.empty());
  ASSERT_EQ(send("PUT", "/b?notification",
                 "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:::q</Queue>"
                 "<Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</"
                 "Event><Filter><S3Key><FilterRule>"
                 "<Name>suffix</Name><Value>.jpg</Value></FilterRule></S3Key></Filter></"
                 "QueueConfiguration>"
                 "</NotificationConfiguration>")
                .status,
            200);
  send("PUT", "/b/a.jpg", "12345");
  send("PUT", "/b/a.txt", "12345");
  send("PUT", "/b/b.jpg", "", {{"x-amz-copy-source", "b/a.jpg"}});
  send("DELETE", "/b/a.jpg");
  send("DELETE", "/b/never.jpg");
  std::vector<std::string> told;
  for (const ObjectEvent& event : events_) told.push_back(event.name + " " + event.key);
  EXPECT_EQ(told, (std::vector<std::string>{"ObjectCreated:Put a.jpg", "ObjectCreated:Copy b.jpg",
                                            "ObjectRemoved:Delete a.jpg"}));
  EXPECT_EQ(events_[0].size_bytes, 5u);
  EXPECT_EQ(events_[0].etag, "827ccb0eea8a706c4c34a16891f84e7b");
}

TEST_F(GatewayTest, AnUploadIsCompletedOnceHoweverOftenItIsAsked) {
  ASSERT_EQ(send("PUT", "/b?notification",
                 "<NotificationConfiguration><QueueConfiguration><Queue>arn:aws:sqs:::q</Queue>"
                 "<Event>s3:ObjectCreated:*</Event></QueueConfiguration></"
                 "NotificationConfiguration>")
                .status,
            200);
  const Headers if_absent = {{"if-none-match", "*"}};
  const std::string target = upload_part("k");
  const Answer first = send("POST", target, list_of_parts_, if_absent);
  EXPECT_EQ(first.status, 200);
  EXPECT_NE(first.body.find("-1"), std::string::npos);
  const Answer again = send("POST", target, list_of_parts_, if_absent);
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.body, first.body);
  EXPECT_EQ(events_.size(), 1u);
  const auto refusal = [&](const std::string& to, const std::string& list, Headers headers = {}) {
    const Answer answer = send("POST", to, list, headers);
    return answer.status == 404 && answer.body.find("NoSuchUpload") != answer.body.npos;
  };
  std::string other_list = list_of_parts_;
  other_list.replace(other_list.find("9a03"), 4, "9a04");
  EXPECT_TRUE(refusal(target, other_list));
  EXPECT_TRUE(refusal(target, list_of_parts_, {{"x-amz-mp-object-size", "8"}}));
  std::string other_key = target;
  EXPECT_TRUE(refusal(other_key.replace(3, 1, "other"), list_of_parts_));
  // Another upload of the same bytes, a put, a copy and a removal end it.
  EXPECT_EQ(send("POST", upload_part("k"), list_of_parts_).status, 200);
  EXPECT_TRUE(refusal(target, list_of_parts_));
  const std::string later = upload_part("k");
  EXPECT_EQ(send("POST", later, list_of_parts_).status, 200);
  EXPECT_EQ(send("PUT", "/b/copy", "", {{"x-amz-copy-source", "b/k"}}).status, 200);
  EXPECT_EQ(send("DELETE", "/b/k").status, 204);
  EXPECT_TRUE(refusal(later, list_of_parts_));
  EXPECT_EQ(send("PUT", "/b/k", "", {{"x-amz-copy-source", "b/copy"}}).status, 200);
  EXPECT_TRUE(refusal(later, list_of_parts_));
}

TEST_F(GatewayTest, AnUploadThatWasLeftBehindItsObjectIsCompleteAndCleanedUp) {
  const std::string target = upload_part("k");
  const std::string id = target.substr(target.find('=') + 1);
  const auto uploads = folder_.path() / ".yard/uploads";
  std::filesystem::copy(uploads / id, folder_.path() / "left",
                        std::filesystem::copy_options::recursive);
  ASSERT_EQ(send("POST", target, list_of_parts_).status, 200);
  std::filesystem::rename(folder_.path() / "left", uploads / id);
  EXPECT_EQ(send("POST", target, list_of_parts_, {{"if-none-match", "*"}}).status, 200);
  EXPECT_TRUE(std::filesystem::is_empty(uploads));
  EXPECT_EQ(send("GET", "/b/k").body, "content");
}

// Each look at it costs six seconds.
class SlowClock final : public Clock {
 public:
  Monotonic now() const override { return Monotonic(std::chrono::seconds(6 * ++looks_)); }
  Wall wall_now() const override { return Clock::real().wall_now(); }
  bool sleep_for(std::chrono::nanoseconds, const StopToken&) override { return true; }

 private:
  mutable std::atomic<int> looks_ = 0;
};

SlowClock& slow_clock() {
  static SlowClock clock;
  return clock;
}

class SlowGatewayTest : public GatewayTest {
 protected:
  SlowGatewayTest() : GatewayTest(slow_clock()) {}
};

TEST_F(SlowGatewayTest, AnAnswerThatTakesLongBeginsBeforeItIsKnown) {
  send("PUT", "/b/k", "content");
  const Answer copied = send("PUT", "/b/copy", "", {{"x-amz-copy-source", "b/k"}});
  EXPECT_EQ(copied.status, 200);
  EXPECT_NE(copied.head.find("chunked"), copied.head.npos);
  EXPECT_NE(copied.body.find("<?xml version=\"1.0\" encoding=\"UTF-8\"?>"), copied.body.npos);
  EXPECT_NE(copied.body.find("<CopyObjectResult"), copied.body.npos);
  EXPECT_EQ(copied.body.find("<?xml"), copied.body.rfind("<?xml"));
  EXPECT_EQ(send("GET", "/b/copy").body, "content");
}

TEST_F(GatewayTest, ControlCharactersInAKeyAreListedEncoded) {
  ASSERT_EQ(send("PUT", "/b/%01%0A", "").status, 200);
  EXPECT_NE(send("GET", "/b?encoding-type=url").body.find("<Key>%01%0A</Key>"), std::string::npos);
  EXPECT_NE(send("GET", "/b").body.find("<Key>&#x1;&#xa;</Key>"), std::string::npos);
}

TEST(CredentialsTest, AreMadeOnceAndForTheOwnerAlone) {
  TempRoot folder;
  const std::string root = folder.path().string();
  EXPECT_EQ(load_credentials(root).error().code, Code::kNotFound);
  const auto made = load_or_make_credentials(root);
  ASSERT_TRUE(made);
  EXPECT_GE(made->secret_key.size(), 40u);
  EXPECT_EQ(load_or_make_credentials(root)->secret_key, made->secret_key);
  std::filesystem::permissions(credentials_path(root), std::filesystem::perms(0640));
  EXPECT_EQ(load_or_make_credentials(root).error().code, Code::kInvalidArgument);
}

TEST(CredentialsTest, ADamagedFileIsAnErrorNotANewKey) {
  TempRoot folder;
  const std::string root = folder.path().string();
  for (const char* text : {"", "{}", "[1]", R"({"access_key_id": "", "secret_access_key": "x"})"}) {
    std::ofstream(credentials_path(root)) << text;
    std::filesystem::permissions(credentials_path(root), std::filesystem::perms(0600));
    EXPECT_EQ(load_or_make_credentials(root).error().code, Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace yard::gateway
