// A client of an ApiFront without threads: one signed request, one answer.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "api/api_front.h"
#include "net/checksums.h"

namespace yard::api {

struct ClientAnswer {
  int status = 0;
  std::string head;
  std::string body;
  Json json() const { return Json::parse(body, nullptr, false); }
};

// Sends `text` as it is.
inline ClientAnswer exchange_text(ApiFront& front, const std::string& text) {
  int sockets[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const UniqueFd client(sockets[0]);
  EXPECT_EQ(::write(client.get(), text.data(), text.size()), ssize_t(text.size()));
  ::shutdown(client.get(), SHUT_WR);
  serve_connection(UniqueFd(sockets[1]), {}, [&](Request& request, ResponseWriter& response) {
    front.handle(request, response);
  });
  std::string answer;
  char buffer[4096];
  for (ssize_t got; (got = ::read(client.get(), buffer, sizeof buffer)) > 0;)
    answer.append(buffer, size_t(got));
  const size_t end = answer.find("\r\n\r\n");
  if (end == answer.npos) return {};
  return {std::stoi(answer.substr(9, 3)), answer.substr(0, end), answer.substr(end + 4)};
}

// The text of a request signed for `service`; `headers` are signed, too.
inline std::string signed_text(const Credentials& credentials, const std::string& service,
                               const std::string& method, const std::string& target,
                               const std::string& body, Headers headers) {
  headers.set("host", "127.0.0.1:8080");
  const size_t mark = target.find('?');
  const std::string query = mark == target.npos ? "" : target.substr(mark + 1);
  const Signer signer("us-east-1", service, Clock::real());
  const auto done = signer.sign({method, std::string_view(target).substr(0, mark), query, headers},
                                credentials, sha256_hex(body));
  for (const auto& [name, value] : done.headers) headers.add(name, value);
  headers.set("content-length", std::to_string(body.size()));
  std::string text = method + " " + target + " HTTP/1.1\r\n";
  for (const auto& [name, value] : headers)
    text += std::string(name) + ": " + std::string(value) + "\r\n";
  return text + "connection: close\r\n\r\n" + body;
}

// A folder that goes when the test does.
class TempFolder {
 public:
  TempFolder() {
    std::string path = (std::filesystem::temp_directory_path() / "yard-api-XXXXXX").string();
    YARD_CHECK(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace yard::api
