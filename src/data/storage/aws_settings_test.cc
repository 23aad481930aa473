#include "storage/aws_settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"

namespace yard::storage {
namespace {

class AwsSettingsTest : public ::testing::Test {
 protected:
  AwsSettingsTest() : home_(::testing::TempDir() + "yard-aws-XXXXXX") {
    YARD_CHECK(::mkdtemp(home_.data()) != nullptr);
    YARD_CHECK(make_directories(home_ + "/.aws"));
    env_["HOME"] = home_;
  }
  ~AwsSettingsTest() override { std::filesystem::remove_all(home_); }

  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(write_file_atomic(home_ + "/.aws/" + name, text));
  }

  std::string home_;
  Environment env_;
};

TEST_F(AwsSettingsTest, WithoutAnythingThereIsNothing) {
  const auto settings = load_aws_settings(env_);
  ASSERT_TRUE(settings);
  EXPECT_FALSE(settings->credentials);
  EXPECT_EQ(settings->region, "");
  EXPECT_TRUE(load_aws_settings({}));
}

TEST_F(AwsSettingsTest, TheEnvironmentComesBeforeTheFiles) {
  write("credentials", "[default]\naws_access_key_id = FILE\naws_secret_access_key=s\n");
  write("config", "[default]\nregion = eu-west-1\nendpoint_url = http://file\n");
  EXPECT_EQ(load_aws_settings(env_)->credentials->access_key, "FILE");
  EXPECT_EQ(load_aws_settings(env_)->region, "eu-west-1");
  EXPECT_EQ(load_aws_settings(env_)->endpoint_url, "http://file");
  env_["AWS_ACCESS_KEY_ID"] = "ENV";
  env_["AWS_SECRET_ACCESS_KEY"] = "s2";
  env_["AWS_SESSION_TOKEN"] = "t";
  env_["AWS_DEFAULT_REGION"] = "eu-west-2";
  env_["AWS_ENDPOINT_URL"] = "http://env";
  const auto settings = load_aws_settings(env_);
  EXPECT_EQ(settings->credentials->access_key, "ENV");
  EXPECT_EQ(settings->credentials->session_token, "t");
  EXPECT_EQ(settings->region, "eu-west-2");
  EXPECT_EQ(settings->endpoint_url, "http://env");
  env_["AWS_REGION"] = "eu-west-3";
  env_["AWS_ENDPOINT_URL_S3"] = "http://s3";
  EXPECT_EQ(load_aws_settings(env_)->region, "eu-west-3");
  EXPECT_EQ(load_aws_settings(env_)->endpoint_url, "http://s3");
}

TEST_F(AwsSettingsTest, AProfileThatIsChosenComesBeforeTheEnvironment) {
  write("credentials", "[work]\naws_access_key_id=WORK\naws_secret_access_key=s\n");
  write("config", "# mine\n[profile work]\nregion=us-west-2\ns3 =\n    addressing_style = path\n");
  env_["AWS_ACCESS_KEY_ID"] = "ENV";
  env_["AWS_SECRET_ACCESS_KEY"] = "s";
  EXPECT_EQ(load_aws_settings(env_, "work")->credentials->access_key, "WORK");
  env_["AWS_PROFILE"] = "work";  // keys of the environment still win, as with botocore
  EXPECT_EQ(load_aws_settings(env_)->credentials->access_key, "ENV");
  EXPECT_EQ(load_aws_settings(env_)->region, "us-west-2");
  env_.erase("AWS_ACCESS_KEY_ID");
  env_.erase("AWS_SECRET_ACCESS_KEY");
  const auto settings = load_aws_settings(env_);
  EXPECT_EQ(settings->credentials->access_key, "WORK");
  EXPECT_NE(settings->credentials_origin.find("profile 'work'"), std::string::npos);
}

TEST_F(AwsSettingsTest, AProfileInNoFileIsNotFound) {
  EXPECT_EQ(load_aws_settings(env_, "none").error().code, Code::kNotFound);
}

TEST_F(AwsSettingsTest, HalfAKeyPairIsRefused) {
  env_["AWS_ACCESS_KEY_ID"] = "A";
  EXPECT_EQ(load_aws_settings(env_).error().code, Code::kInvalidArgument);
  env_.erase("AWS_ACCESS_KEY_ID");
  write("credentials", "[default]\naws_secret_access_key=s\n");
  EXPECT_EQ(load_aws_settings(env_).error().code, Code::kInvalidArgument);
}

TEST_F(AwsSettingsTest, AProfileWithAnotherWayToKeysSaysSo) {
  write("config", "[profile sso]\nsso_session = x\n[profile role]\nrole_arn = arn:x\n");
  for (const char* profile : {"sso", "role"}) {
    const auto settings = load_aws_settings(env_, profile);
    ASSERT_FALSE(settings);
    EXPECT_EQ(settings.error().code, Code::kInvalidArgument);
    EXPECT_NE(settings.error().message.find("not supported"), std::string::npos);
  }
}

TEST(IniTest, ALineThatIsNoneIsNamedByItsNumber) {
  for (const char* text : {"[a]\nx\n", "[a\n", "x = 1\n"}) {
    const auto file = parse_ini(text, "f");
    ASSERT_FALSE(file) << text;
    EXPECT_NE(file.error().message.find("f: line "), std::string::npos);
  }
  const auto file = parse_ini("[profile  a ]\r\nx=1=2\r\n; c\n\n[b]", "f");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->at("profile a").at("x"), "1=2");
  EXPECT_TRUE(file->contains("b"));
}

}  // namespace
}  // namespace yard::storage
